package features

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
)

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
	case "expert_layers/1":
		return sc.space.moeShare(args[0]*sc.space.engines) * sc.space.layers, nil
	case "experts_touched/1":
		return sc.space.expertsTouched(args[0] * sc.space.engines), nil
	case "prompt_attention_s/1":
		return prefillAttention13(sc.space, sc.space.promptStep(args[0])), nil
	case "weight_bytes/2":
		return sc.space.weightBytes(args[0], args[1]), nil
	case "all_reduce_s/1":
		return sc.space.reduceS(args[0]), nil
	case "logits_gather_s/1":
		return sc.space.gatheredS(args[0]), nil
	case "gate/2":
		return sc.space.gateAt(args[0], args[1]), nil
	default:
		return 0, fmt.Errorf("function %s is not defined", key)
	}
}
