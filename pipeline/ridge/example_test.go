package ridge_test

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Two machines, each timed while its load rises and falls: y = 200 + 3*load, and
// the second machine's load counts double.
func Example() {
	d := &ridge.Data{P: 2}
	for i := range 240 {
		machine := int32(i / 120)
		load := (1 + float64(machine)) * (50 + 40*math.Sin(float64(i)/7))
		d.X = append(d.X, load, 1)
		d.Y = append(d.Y, 3*load+200)
		d.Config = append(d.Config, machine)
		d.Regime = append(d.Regime, 0)
		d.Time = append(d.Time, int64(i))
	}
	o := ridge.DefaultOptions(d.P)
	sel, err := ridge.Select(d, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fit, err := ridge.FitRows(d, ridge.Weights(d, o), nil, sel[0].Lambda, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("lambda %g by %s\n", sel[0].Lambda, sel[0].Objective)
	fmt.Printf("beta %.2f, certified %v\n", fit.Beta, fit.Cert.OK())
	// Output:
	// lambda 1e-06 by within
	// beta [3.00 200.00], certified true
}
