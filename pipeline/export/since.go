package export

// This file lists what changed since an earlier validation.

import (
	"cmp"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Old has the gates, verdicts and coefficients of an earlier validation, for --baseline.
type Old struct {
	Name     string // file or folder, for people
	Gates    []coeff.Gate
	Purposes []coeff.PurposeVerdict
	Set      *coeff.Set // nil: a validation.json alone
}

// OldSet returns the gates, verdicts and coefficients of the coefficient file name.
func OldSet(name string, set *coeff.Set) *Old {
	return &Old{Name: name, Gates: set.Gates, Purposes: set.Purposes, Set: set}
}

// AddValidation sets the gates and verdicts to those of a validation.json.
func (o *Old) AddValidation(v *result.Validation) {
	o.Gates, o.Purposes, _ = v.Verdicts()
}

// figureTolerance is the relative change of a gate's value from which on it is reported: half of
// the last digit of a number that reports show with two digits.
const figureTolerance = 0.01

// Since returns the changes of a validation and its coefficients (set, may be nil) against an
// earlier one: verdicts; gates of both whose value moved by more than 1 % or which now pass or
// fail; and terms that moved significantly, or by more than 1 % if they have no interval.
func Since(old *Old, v *result.Validation, set *coeff.Set) *result.Changes {
	out := &result.Changes{Against: old.Name}
	verdictChanges(out, old, v)
	gateChanges(out, old, v)
	if old.Set == nil || set == nil {
		out.Notes = append(out.Notes, "no coefficients to compare with")
		return out
	}
	d, err := Diff(old.Set, set, nil, DefaultDiffOptions())
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
		return out
	}
	for i := range d.Terms {
		t := &d.Terms[i]
		moved := t.Significant == nil && math.Abs(t.Delta) > figureTolerance*math.Abs(t.A) ||
			t.Significant != nil && *t.Significant
		if !moved {
			out.Same++
			continue
		}
		out.Rows = append(out.Rows,
			result.Change{Kind: result.ChangeTerm, Name: t.Name, Scope: t.Model, Unit: t.Unit, Old: &t.A, New: &t.B,
				P: t.P})
	}
	out.Notes = append(out.Notes, d.Settings...)
	return out
}

// verdictChanges appends the verdicts that changed to out.
func verdictChanges(out *result.Changes, old *Old, v *result.Validation) {
	was := map[[2]string]string{} // verdicts by purpose and scope
	for _, p := range old.Purposes {
		was[[2]string{p.Purpose, p.Scope}] = p.Verdict
	}
	for _, p := range v.Purposes {
		before, known := was[[2]string{p.Purpose, p.Scope}]
		switch {
		case !known:
			if p.Scope != coeff.ScopeAll && len(old.Purposes) > 0 && p.Purpose == coeff.PurposeSteps {
				out.Notes = append(out.Notes, fmt.Sprintf("%s is new", p.Scope))
			}
		case before == p.Verdict:
			out.Same++
		default:
			out.Rows = append(out.Rows,
				result.Change{Kind: result.ChangeVerdict, Name: p.Purpose, Scope: p.Scope, Was: before, Is: p.Verdict})
		}
	}
	if len(old.Purposes) == 0 {
		out.Notes = append(out.Notes, "no verdicts by purpose before")
	}
}

// gateChanges appends the gates that changed to out, those that now pass or fail first.
func gateChanges(out *result.Changes, old *Old, v *result.Validation) {
	was := map[[2]string]*coeff.Gate{} // gates by name and scope
	for i := range old.Gates {
		g := &old.Gates[i]
		was[[2]string{g.Name, g.Scope}] = g
	}
	var rows []result.Change
	for i := range v.Gates {
		g := &v.Gates[i]
		before := was[[2]string{g.Name, g.Scope}]
		if before == nil || before.Value == nil && g.Value == nil {
			continue
		}
		c := result.Change{Kind: result.ChangeGate, Name: g.Name, Scope: g.Scope, Old: before.Value, New: g.Value,
			Was: passWord(before.Pass),
			Is:  passWord(g.Pass)}
		if c.Was == c.Is && relative(c.Old, c.New) <= figureTolerance {
			out.Same++
			continue
		}
		rows = append(rows, c)
	}
	stat.SortStable(rows, func(a, b result.Change) int {
		return cmp.Or(cmp.Compare(turned(b), turned(a)), cmp.Compare(relative(b.Old, b.New), relative(a.Old, a.New)))
	})
	out.Rows = append(out.Rows, rows...)
}

// turned returns 1 for a gate that changed between pass and fail, else 0, to sort by.
func turned(c result.Change) int {
	if c.Was != c.Is {
		return 1
	}
	return 0
}

// passWord returns the result of a gate as a word.
func passWord(pass *bool) string {
	switch {
	case pass == nil:
		return "not judged"
	case *pass:
		return coeff.VerdictPass
	}
	return coeff.VerdictFail
}

// relative returns the size of the change from a to b over a. It is infinite if one of them is
// unknown or a is 0.
func relative(a, b *float64) float64 {
	switch {
	case a == nil || b == nil:
		return math.Inf(1)
	case *a == *b:
		return 0
	}
	return math.Abs(*b-*a) / math.Abs(*a)
}
