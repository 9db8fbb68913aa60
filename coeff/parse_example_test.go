package coeff_test

import (
	"fmt"
	"log"
	"os"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
)

// A program that has the bytes of a coefficient file and a deployment asks for the time of a step and for the delay
// of a request before the queue. Neither needs a file or a clock.
func ExampleParse() {
	text, err := os.ReadFile("testdata/example/coefficients.yaml") // or the bytes from anywhere else
	if err != nil {
		log.Fatal(err)
	}
	set, err := coeff.Parse(text)
	if err != nil {
		log.Fatal(err)
	}
	deployment, err := deploy.LoadRun("testdata/example")
	if err != nil {
		log.Fatal(err)
	}
	step, err := sim.NewPhysics(set, deployment)
	if err != nil {
		log.Fatal(err)
	}
	var batch sim.Batch
	batch.AddPrefill(0, 512, 512) // a whole prompt of 512 tokens
	batch.AddDecodes(2, 500, 64)  // beside two decodes with 500 tokens of context each, 64 blocks of KV cache together
	us, err := step.StepUs(&batch)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step: %.0f us\n", us)

	delay, err := sim.NewAlphaDelay(set, coeff.Overhead, deployment)
	if err != nil {
		log.Fatal(err)
	}
	us, err = delay.DelayUs(&sim.Queue{Running: 2, Waiting: 1, PromptTokens: 512, TotalBlocks: 1000, FreeBlocks: 900})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("before the queue: %.0f us\n", us)
	// Output:
	// step: 21062 us
	// before the queue: 1500 us
}
