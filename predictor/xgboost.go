package predictor

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
)

// Types of XGBoost's columns.
const (
	float    = "float"
	Int      = "int"
	category = "c" // a pandas category; our trees never split on one
)

// Column is one column of an XGBoost model.
type Column struct{ Name, Type string }

// xgBoost writes a forest as an XGBoost model document, the JSON that save_model
// writes and load_model reads. A forest of logarithms becomes a model with a log
// link (reg:gamma): XGBoost then predicts exp(margin), and base_score stands in
// output space. Any other forest becomes reg:squarederror.
//
// base_score is the scalar that versions before 3.1 write. Versions from 3.1 on
// write a list and read both; an older version reads the list without an error and
// predicts wrong (2.1.4: as if it were 0.5), so the list is never written.
//
// Predictions are those of forest.Evaluator to the bit; the log link adds the
// rounding of exp in float32, about 6e-8.
func xgBoost(w io.Writer, f *forest.Forest, columns []Column, isLog bool) error {
	base, objective := f.Base, "reg:squarederror"
	if isLog {
		base, objective = stat.Exp(f.Base), "reg:gamma"
	}
	if b := float32(base); math.IsInf(float64(b), 0) || isLog && b == 0 {
		return fmt.Errorf("base of the forest: got %g, want a float32 that is not 0", base)
	}
	if _, err := f.Compile(len(columns)); err != nil {
		return err
	}
	var names, types []string
	for _, c := range columns {
		names, types = append(names, c.Name), append(types, c.Type)
	}
	ends, info, trees := []int{0}, make([]int, len(f.Trees)), make([]any, 0, len(f.Trees))
	for i, t := range f.Trees {
		for _, n := range t {
			if n.Feature != forest.Leaf && columns[n.Feature].Type == category {
				return fmt.Errorf("tree %d splits on the category %q, want splits on numbers only", i, columns[n.Feature].Name)
			}
		}
		ends, trees = append(ends, i+1), append(trees, xgbTree(i, t, len(columns)))
	}
	return json.NewEncoder(w).Encode(map[string]any{"version": [3]int{2, 0, 0}, "learner": map[string]any{
		"attributes":    map[string]any{},
		"feature_names": names,
		"feature_types": types,
		"gradient_booster": map[string]any{"name": "gbtree", "model": map[string]any{
			"gbtree_model_param": map[string]string{"num_parallel_tree": "1", "num_trees": strconv.Itoa(len(f.Trees))},
			"iteration_indptr":   ends,
			"tree_info":          info,
			"trees":              trees,
		}},
		"learner_model_param": map[string]string{"base_score": strconv.FormatFloat(base, 'E', -1, 32), "boost_from_average": "1",
			"num_class": "0", "num_feature": strconv.Itoa(len(columns)), "num_target": "1"},
		"objective": map[string]any{"name": objective, "reg_loss_param": map[string]string{"scale_pos_weight": "1"}},
	}})
}

// xgbNoParent is the parent of a root: the largest int32.
const xgbNoParent = math.MaxInt32

// xgbTree is a tree as XGBoost names its parts. Statistics that only describe training (gains, hessians) are 0: the
// reader wants the keys.
func xgbTree(id int, t forest.Tree, columns int) map[string]any {
	n := len(t)
	parents, left, right := make([]int, n), make([]int, n), make([]int, n)
	indices, defaultLeft := make([]int, n), make([]int, n)
	conditions, weights := make([]xgbNumber, n), make([]xgbNumber, n)
	parents[0] = xgbNoParent
	splits := 0
	for i, node := range t {
		conditions[i] = xgbNumber(node.Value)
		if node.Feature == forest.Leaf {
			left[i], right[i], weights[i] = -1, -1, xgbNumber(node.Value)
			continue
		}
		first := 2*splits + 1
		splits++
		left[i], right[i], indices[i], defaultLeft[i] = first, first+1, node.Feature, 1
		parents[first], parents[first+1] = i, i
	}
	return map[string]any{
		"id": id, "parents": parents, "left_children": left, "right_children": right, "split_indices": indices,
		"default_left": defaultLeft, "split_conditions": conditions, "base_weights": weights, "split_type": make([]int, n),
		"loss_changes": make([]xgbNumber, n), "sum_hessian": make([]xgbNumber, n), "categories": []int{}, "categories_nodes": []int{},
		"categories_segments": []int{}, "categories_sizes": []int{},
		"tree_param": map[string]string{"num_deleted": "0", "num_feature": strconv.Itoa(columns), "num_nodes": strconv.Itoa(n),
			"size_leaf_vector": "1"},
	}
}

// xgbNumber is a number of a list of reals. XGBoost's reader tells integers from
// reals and refuses a list that starts with 0 where it wants 0.0.
type xgbNumber float32

func (n xgbNumber) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'E', -1, 32), nil
}
