package option

import (
	"reflect"
	"strings"
	"testing"
)

type stage struct {
	Name  string
	Share float64
	N     int
	Seed  int64
	Quick bool
	Runs  []string
	Extra *float64
	Cores int
}

func defaults() stage { return stage{Name: "a", Share: 0.8, Seed: 1} }

func (s *stage) table() Table {
	return Table{
		String("name", &s.Name, "").Recorded(), Real("share", &s.Share, "").Recorded(), Whole("n", &s.N, "").Recorded().Unless("0"),
		Whole("seed", &s.Seed, "").Recorded(), Switch("quick", &s.Quick, "").Recorded(),
		List("run", &s.Runs, "").Recorded(), Maybe("extra", &s.Extra, "").Recorded(), Whole("cores", &s.Cores, ""),
	}
}

// What is recorded reads back into the same options.
func TestCommandRoundTrip(t *testing.T) {
	extra := 0.0
	for want, s := range map[string]stage{
		"fit --name a --seed 1 --share 0.8": defaults(),
		"fit --extra 0 --n 3 --name b --quick --run x --run y --seed 0 --share 0.5": {
			Name: "b", Share: 0.5, N: 3, Quick: true, Runs: []string{"x", "y"}, Extra: &extra},
	} {
		got := s.table().Command("fit")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		again := defaults()
		if err := again.table().Parse(got, "fit"); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if !reflect.DeepEqual(again, s) {
			t.Errorf("%s: got %+v, want %+v", got, again, s)
		}
	}
	s := defaults()
	if s.Cores = 8; strings.Contains(s.table().Command("fit"), "cores") {
		t.Error("an option that changes no result is recorded")
	}
}

func TestParseRefuses(t *testing.T) {
	for command, want := range map[string]string{
		"":                  "want fit and its options",
		"simulate --seed 1": "want fit and its options",
		"fit --sead 1":      `got "--sead", want an option of fit`,
		"fit out":           `got "out", want an option of fit`,
		"fit --seed":        "--seed: got nothing, want a value",
		"fit --seed one":    `--seed: got "one", want a whole number`,
		"fit --share x":     `--share: got "x", want a number`,
		"fit --quick=maybe": `--quick: got "maybe", want true or false`,
	} {
		s := defaults()
		if err := s.table().Parse(command, "fit"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", command, err, want)
		}
	}
}

func TestPartsOfATable(t *testing.T) {
	s := defaults()
	if only := s.table().Only("seed", "run"); len(only) != 2 || only[0].Name != "seed" {
		t.Errorf("got %v", only)
	}
	if n := len(s.table().Without("seed", "run")); n != 6 {
		t.Errorf("got %d options, want 6", n)
	}
}
