package deploy

import (
	"encoding/json"
	"reflect"
	"testing"

	"gopkg.in/yaml.v3"
)

// What YAML says of settings survives JSON, to the last digit of a stamp.
func TestValuesSurviveJSON(t *testing.T) {
	var want map[string]any
	text := "phases: [{end_wall_ns: 1795302397582730346, share: 0.25}]\nseed: 18446744073709551615\n" +
		"below: -9007199254740993\nrate: 1.5e300\non: true\nnone: null\nname: a\n"
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	d := Deployment{Workload: want}
	d.Engine.Extra = want
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var got Deployment
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]Values{"workload": got.Workload, "vllm.extra": got.Engine.Extra} {
		if !reflect.DeepEqual(map[string]any(v), want) {
			t.Errorf("%s: got %v, want %v", name, v, want)
		}
	}
}
