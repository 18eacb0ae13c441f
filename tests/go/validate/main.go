// Validate says what an API server would say to ResourceSlices that it is asked to create.
//
// It reads one JSON object per line and answers one JSON line each, by the code that kube-apiserver runs
// between the request's body and the storage: strict decoding, defaults, the registry's strategy (which clears
// the fields of disabled features), handwritten and declarative validation. Admission and storage are left out.
// It is built in the Go module of each Kubernetes version, so it imports nothing that isn't in all of them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

var (
	wire     = schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}
	kind     = wire.WithKind("ResourceSlice")
	internal = schema.GroupVersion{Group: wire.Group, Version: runtime.APIVersionInternal}
)

// fault is one reason for a refusal. Field is empty where decoding already failed.
type fault struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// verdict is the answer to one line. Dropped holds the path of each field that the strategy cleared.
type verdict struct {
	Accepted bool     `json:"accepted"`
	Faults   []fault  `json:"faults"`
	Unknown  []string `json:"unknown"`
	Dropped  [][]any  `json:"dropped"`
}

func main() {
	gates := flag.String("feature-gates", "", "as of kube-apiserver")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // the validation reports differences between its two halves as errors
	if err := utilfeature.DefaultMutableFeatureGate.Set(*gates); err != nil {
		fail(err)
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "validate:", err)
	os.Exit(1)
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	buffered := bufio.NewWriter(out)
	answers := json.NewEncoder(buffered)
	for lines.Scan() {
		if err := answers.Encode(judge(lines.Bytes())); err != nil {
			return err
		}
		if err := buffered.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// judge is what createHandler and Store.Create do. A panic answers 500 in a server, so nothing is created.
func judge(body []byte) (answer verdict) {
	answer = verdict{Faults: []fault{}, Unknown: []string{}, Dropped: [][]any{}}
	defer func() {
		if what := recover(); what != nil {
			answer.Accepted = false
			answer.Faults = append(answer.Faults, fault{Message: fmt.Sprint("panic: ", what)})
		}
	}()
	slice, warnings, err := decode(body)
	for _, warning := range warnings {
		answer.Unknown = append(answer.Unknown, warning.Error())
	}
	if err != nil {
		answer.Faults = []fault{{Message: err.Error()}}
		return answer
	}
	before := tree(slice)
	err = create(slice)
	answer.Dropped = dropped(before, tree(slice))
	answer.Faults = faults(err)
	answer.Accepted = err == nil
	return answer
}

func decode(body []byte) (*resource.ResourceSlice, []error, error) {
	info, ok := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, nil, errors.New("no JSON serializer")
	}
	decoder := legacyscheme.Codecs.DecoderToVersion(info.StrictSerializer, internal)
	object, _, err := decoder.Decode(body, &kind, &resource.ResourceSlice{})
	var warnings []error
	if err != nil {
		strict, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict || object == nil {
			return nil, nil, err
		}
		warnings = strict.Errors()
	}
	slice, ok := object.(*resource.ResourceSlice)
	if !ok {
		return nil, warnings, fmt.Errorf("a %T", object)
	}
	return slice, warnings, nil
}

func create(slice *resource.ResourceSlice) error {
	ctx := genericapirequest.WithNamespace(context.Background(), "")
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIPrefix: "apis",
		APIGroup: wire.Group, APIVersion: wire.Version, Resource: "resourceslices",
	})
	accessor, err := meta.Accessor(slice)
	if err != nil {
		return err
	}
	rest.WipeObjectMetaSystemFields(accessor)
	accessor.SetNamespace("")
	accessor.SetManagedFields(nil)
	rest.FillObjectMetaSystemFields(accessor)
	if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
		accessor.SetName(resourceslice.Strategy.GenerateName(accessor.GetGenerateName()))
	}
	return rest.BeforeCreate(resourceslice.Strategy, ctx, slice)
}

func faults(err error) []fault {
	found := []fault{}
	if err == nil {
		return found
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			found = append(found, fault{Field: cause.Field, Message: cause.Message})
		}
	}
	var one *field.Error
	if errors.As(err, &one) {
		found = append(found, fault{Field: one.Field, Message: one.ErrorBody()})
	}
	if len(found) == 0 {
		found = append(found, fault{Message: err.Error()})
	}
	return found
}

// tree is the spec as the wire format shows it.
func tree(slice *resource.ResourceSlice) any {
	object, err := legacyscheme.Scheme.ConvertToVersion(slice.DeepCopy(), wire)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		panic(err)
	}
	return map[string]any{"spec": fields["spec"]}
}

func dropped(before, after any) [][]any {
	found := [][]any{}
	compare(before, after, nil, &found)
	return found
}

func compare(before, after any, path []any, found *[][]any) {
	switch was := before.(type) {
	case map[string]any:
		is, _ := after.(map[string]any)
		for _, key := range sorted(was) {
			down(was[key], is[key], path, key, found)
		}
	case []any:
		is, _ := after.([]any)
		for index := range was {
			if index < len(is) {
				down(was[index], is[index], path, index, found)
			}
		}
	default:
		if !reflect.DeepEqual(before, after) {
			*found = append(*found, path)
		}
	}
}

func down(before, after any, path []any, step any, found *[][]any) {
	below := append(append([]any{}, path...), step)
	if after == nil && before != nil {
		*found = append(*found, below)
		return
	}
	compare(before, after, below, found)
}

func sorted(fields map[string]any) []string {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
