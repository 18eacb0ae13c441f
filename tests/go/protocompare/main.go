// Protocompare prints what the kubelet's own Go packages say about its gRPC contracts.
//
// The output is one JSON object, package by package: messages with their fields, enums with their
// values, methods with their full names. A test compares it with the descriptors made from our .proto files.
package main

import (
	"encoding/json"
	"log"
	"os"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// One message of each file leads to the whole file's descriptor.
var anchors = map[string]protoreflect.ProtoMessage{
	"pluginregistration_v1": &registration.PluginInfo{},
	"dra_v1":                &dra.Claim{},
	"dra_health_v1":         &drahealthv1.DeviceHealth{},
	"dra_health_v1alpha1":   &drahealthv1alpha1.DeviceHealth{},
	"deviceplugin_v1beta1":  &deviceplugin.Device{},
	"podresources_v1":       &podresources.PodResources{},
	"grpc_health_v1":        &healthpb.HealthCheckRequest{},
}

type field struct {
	Number   int    `json:"number"`
	Kind     string `json:"kind"`
	Label    string `json:"label"`
	Type     string `json:"type,omitempty"`
	Presence bool   `json:"presence"`
}

type method struct {
	Input           string `json:"input"`
	Output          string `json:"output"`
	ClientStreaming bool   `json:"client_streaming"`
	ServerStreaming bool   `json:"server_streaming"`
}

type contract struct {
	Package  string                      `json:"package"`
	Messages map[string]map[string]field `json:"messages"`
	Enums    map[string]map[string]int   `json:"enums"`
	Methods  map[string]method           `json:"methods"`
}

func describeField(f protoreflect.FieldDescriptor) field {
	d := field{Number: int(f.Number()), Kind: f.Kind().String(), Label: "single"}
	if f.IsList() || f.IsMap() {
		d.Label = "repeated"
	}
	if m := f.Message(); m != nil {
		d.Type = string(m.FullName())
	}
	if e := f.Enum(); e != nil {
		d.Type = string(e.FullName())
	}
	d.Presence = f.HasPresence()
	return d
}

func (c *contract) addEnums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		values := map[string]int{}
		for j := range enums.Get(i).Values().Len() {
			v := enums.Get(i).Values().Get(j)
			values[string(v.Name())] = int(v.Number())
		}
		c.Enums[string(enums.Get(i).FullName())] = values
	}
}

func (c *contract) addMessages(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		fields := map[string]field{}
		for j := range m.Fields().Len() {
			fields[string(m.Fields().Get(j).Name())] = describeField(m.Fields().Get(j))
		}
		c.Messages[string(m.FullName())] = fields
		c.addEnums(m.Enums())
		c.addMessages(m.Messages()) // map entries too: they hold the types of key and value
	}
}

func (c *contract) addMethods(services protoreflect.ServiceDescriptors) {
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			c.Methods["/"+string(services.Get(i).FullName())+"/"+string(m.Name())] = method{
				Input:           string(m.Input().FullName()),
				Output:          string(m.Output().FullName()),
				ClientStreaming: m.IsStreamingClient(),
				ServerStreaming: m.IsStreamingServer(),
			}
		}
	}
}

func describe(file protoreflect.FileDescriptor) contract {
	c := contract{
		Package:  string(file.Package()),
		Messages: map[string]map[string]field{},
		Enums:    map[string]map[string]int{},
		Methods:  map[string]method{},
	}
	c.addEnums(file.Enums())
	c.addMessages(file.Messages())
	c.addMethods(file.Services())
	return c
}

func main() {
	all := map[string]contract{}
	for name, anchor := range anchors {
		all[name] = describe(anchor.ProtoReflect().Descriptor().ParentFile())
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		log.Fatal(err)
	}
}
