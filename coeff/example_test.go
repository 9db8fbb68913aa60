package coeff_test

import (
	"fmt"
	"log"
	"math"
	"os"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// A simulator loads a coefficient file once, binds it to its deployment, and
// asks for the time of every batch it forms. Inputs, features and rounding are
// the trainer's own functions, so the two cannot drift apart.
func ExampleLoad() {
	file, err := os.Open("testdata/example/coefficients.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	set, err := coeff.Load(file, file.Name(), features.CheckSet)
	if err != nil {
		log.Fatal(err)
	}
	deployment, err := deploy.LoadRun("testdata/example")
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range set.Outside(deployment) {
		fmt.Println("warning:", finding.Message)
	}
	space, err := features.New(set.SpecVersion, deployment)
	if err != nil {
		log.Fatal(err)
	}
	predictor := features.BetaPredictor(set)
	x := make([]float64, len(space.BetaFeatures()))

	// one engine step: a 512-token prefill beside two decodes
	batch := []trace.Chunk{{Prompt: 512, New: 512}, {Computed: 900, Prompt: 800, New: 1}, {Computed: 70, Prompt: 64, New: 1}}
	step := space.Sum(batch)
	hits, err := space.Beta(&step, x)
	if err != nil {
		log.Fatal(err)
	}
	us, err := predictor.Predict(x, hits)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("step:", math.Floor(us+0.5), "us")
	for _, finding := range predictor.Warnings() {
		fmt.Println("warning:", finding.Message)
	}
	// Output:
	// step: 21059 us
}
