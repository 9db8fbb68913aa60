package features

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"strings"
)

// Formulas are expressions in Go's syntax over inputs, constants and earlier
// slots, with the functions max, min, ln, pos(x) (1 when x > 0, else 0) and
// those of the space: expert_share(tokens), weight_bytes(tokens, sequences),
// gate(running, usage). The explain command prints them with numbers, and a
// test evaluates each against the function it describes.

// scope is what names in a formula stand for.
type scope struct {
	space  *Space
	values map[string]float64
}

// eval computes a formula.
func (sc *scope) eval(formula string) (float64, error) {
	expr, err := parser.ParseExpr(formula)
	if err != nil {
		return 0, fmt.Errorf("formula %q: %w", formula, err)
	}
	return sc.expr(expr)
}

func (sc *scope) expr(e ast.Expr) (float64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.ParenExpr:
		return sc.expr(e.X)
	case *ast.Ident:
		v, ok := sc.values[e.Name]
		if !ok {
			return 0, fmt.Errorf("name %q is not defined", e.Name)
		}
		return v, nil
	case *ast.BinaryExpr:
		return sc.binary(e)
	case *ast.CallExpr:
		return sc.call(e)
	}
	return 0, fmt.Errorf("%T is not part of a formula", e)
}

func (sc *scope) binary(e *ast.BinaryExpr) (float64, error) {
	x, err := sc.expr(e.X)
	if err != nil {
		return 0, err
	}
	y, err := sc.expr(e.Y)
	if err != nil {
		return 0, err
	}
	switch e.Op {
	case token.ADD:
		return x + y, nil
	case token.SUB:
		return x - y, nil
	case token.MUL:
		return x * y, nil
	case token.QUO:
		return x / y, nil
	}
	return 0, fmt.Errorf("operator %s is not part of a formula", e.Op)
}

func (sc *scope) call(e *ast.CallExpr) (float64, error) {
	args := make([]float64, len(e.Args))
	for i := range e.Args {
		var err error
		if args[i], err = sc.expr(e.Args[i]); err != nil {
			return 0, err
		}
	}
	name, _ := e.Fun.(*ast.Ident)
	if name == nil {
		return 0, fmt.Errorf("%T is not a function", e.Fun)
	}
	switch key := fmt.Sprintf("%s/%d", name.Name, len(args)); key {
	case "max/2":
		return math.Max(args[0], args[1]), nil
	case "min/2":
		return math.Min(args[0], args[1]), nil
	case "ln/1":
		return math.Log(args[0]), nil
	case "pos/1":
		return oneIf(args[0] > 0), nil
	case "expert_share/1":
		return sc.space.expertShare(args[0]), nil
	case "weight_bytes/2":
		return sc.space.weightBytes(args[0], args[1]), nil
	case "gate/2":
		return sc.space.gateAt(args[0], args[1]), nil
	default:
		return 0, fmt.Errorf("function %s is not defined", key)
	}
}

// numbers writes a formula with every name replaced by its value.
func (sc *scope) numbers(formula string) string {
	var b strings.Builder
	for i := 0; i < len(formula); {
		word := identifier(formula[i:])
		if word == "" {
			b.WriteByte(formula[i])
			i++
			continue
		}
		i += len(word)
		if v, ok := sc.values[word]; ok && (i == len(formula) || formula[i] != '(') {
			b.WriteString(strconv.FormatFloat(v, 'g', 6, 64))
		} else {
			b.WriteString(word)
		}
	}
	return b.String()
}

// identifier returns the name or number at the start of text, "" for neither,
// so that "1e-6" is not taken for a name.
func identifier(text string) string {
	n := 0
	for n < len(text) {
		c := text[n]
		isLetter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		isDigit := c >= '0' && c <= '9' || c == '.'
		isExponent := n > 0 && c == '-' && text[n-1] == 'e' && text[0] >= '0' && text[0] <= '9'
		if !isLetter && !isDigit && !isExponent {
			break
		}
		n++
	}
	return text[:n]
}
