// Command strict reads manifests from standard input, separated by `---`, and decodes custom resources into the types that
// their projects publish. Unknown fields and wrong types are errors; a schema without `additionalProperties: false` would
// accept them. It prints how many manifests it decoded.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// Each kind's Go type.
var kinds = map[string]func() any{
	"gateway.networking.k8s.io/v1/GRPCRoute":  func() any { return &gateway.GRPCRoute{} },
	"gateway.networking.k8s.io/v1/HTTPRoute":  func() any { return &gateway.HTTPRoute{} },
	"monitoring.coreos.com/v1/PodMonitor":     func() any { return &monitoring.PodMonitor{} },
	"monitoring.coreos.com/v1/PrometheusRule": func() any { return &monitoring.PrometheusRule{} },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
}

type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func main() {
	decoded, faults := 0, 0
	documents := utilyaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var about head
		if err := yaml.Unmarshal(document, &about); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		typed, known := kinds[about.APIVersion+"/"+about.Kind]
		if !known {
			continue
		}
		if err := yaml.UnmarshalStrict(document, typed()); err != nil {
			fmt.Fprintf(os.Stderr, "%s %s: %v\n", about.Kind, about.Metadata.Name, err)
			faults++
		}
		decoded++
	}
	fmt.Println(decoded)
	if faults > 0 {
		os.Exit(1)
	}
}
