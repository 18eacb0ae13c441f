// Allocate runs the scheduler's own allocator on slices, classes and claims that it is given.
//
// It answers requests on standard input, one JSON object a line, with one JSON object a line. What a request
// leaves out of slices, classes, node and features stays as it was, so that a long sequence of claims sends
// its slices once. One source serves several Kubernetes minors: a .mod file beside it is one of them each.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The scheduler's plugin keeps as many compiled selectors.
const cachedSelectors = 10

type request struct {
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Node      string                       `json:"node"`
	Features  json.RawMessage              `json:"features"`  // names of this minor's structured.Features
	Allocated [][3]string                  `json:"allocated"` // driver, pool, device; nothing is remembered
	Claims    []*resourceapi.ResourceClaim `json:"claims"`    // those of one pod
	Timeout   float64                      `json:"timeout"`   // seconds; the scheduler's own default is 10
	Repeat    int                          `json:"repeat"`    // times the fastest of so many runs
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"` // null: it doesn't fit on this node
	Error       string                         `json:"error,omitempty"`
	Timeout     bool                           `json:"timeout,omitempty"`
	Seconds     float64                        `json:"seconds"`
}

type world struct {
	slices   []*resourceapi.ResourceSlice
	classes  classes
	node     *corev1.Node
	features structured.Features
	cache    *cel.Cache
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}

func (w *world) update(r *request) error {
	if r.Slices != nil {
		w.slices = r.Slices
	}
	if r.Classes != nil {
		w.classes = classes{}
		for _, class := range r.Classes {
			w.classes[class.Name] = class
		}
	}
	if r.Node != "" {
		labels := map[string]string{corev1.LabelHostname: r.Node}
		w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Node, Labels: labels}}
	}
	if r.Features != nil {
		w.features = structured.Features{}
		return strict(r.Features, &w.features)
	}
	return nil
}

func (w *world) allocate(r *request) answer {
	if err := w.update(r); err != nil {
		return answer{Error: err.Error()}
	}
	best := w.once(r)
	for range r.Repeat - 1 {
		if next := w.once(r); next.Seconds < best.Seconds {
			best = next
		}
	}
	return best
}

// once is what the scheduler does for a pod on its first node: a new allocator, then a search.
func (w *world) once(r *request) answer {
	ctx := context.Background()
	if r.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(r.Timeout*float64(time.Second)))
		defer cancel()
		ctx = limited
	}
	started := time.Now()
	found, err := w.search(ctx, r)
	seconds := time.Since(started).Seconds()
	if err != nil {
		return answer{
			Error:   err.Error(),
			Timeout: errors.Is(err, context.DeadlineExceeded),
			Seconds: seconds,
		}
	}
	return answer{Allocations: found, Seconds: seconds}
}

func (w *world) search(ctx context.Context, r *request) ([]resourceapi.AllocationResult, error) {
	held := sets.New[structured.DeviceID]()
	for _, id := range r.Allocated {
		held.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	state := structured.AllocatedState{
		AllocatedDevices:         held,
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(ctx, w.features, state, w.classes, w.slices, w.cache)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(ctx, w.node, r.Claims)
}

func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func main() {
	w := &world{cache: cel.NewCache(cachedSelectors, cel.Features{})}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		var r request
		if err := strict(line, &r); err != nil {
			log.Fatalf("not a request: %v", err)
		}
		if err := out.Encode(w.allocate(&r)); err != nil {
			log.Fatal(err)
		}
	}
}
