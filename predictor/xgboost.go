package predictor

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/portable"
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
		base, objective = portable.Exp(f.Base), "reg:gamma"
	}
	if b := float32(base); math.IsInf(float64(b), 0) || isLog && b == 0 {
		return fmt.Errorf("base of the forest: got %g, want a float32 that is not 0", base)
	}
	if _, err := f.Compile(len(columns)); err != nil {
		return err
	}
	doc := xgbDocument{Version: [3]int{2, 0, 0}}
	l := &doc.Learner
	l.Attributes = struct{}{}
	for _, c := range columns {
		l.Names, l.Types = append(l.Names, c.Name), append(l.Types, c.Type)
	}
	l.Param = xgbLearnerParam{BaseScore: strconv.FormatFloat(base, 'E', -1, 32), BoostFromAverage: "1", NumClass: "0",
		NumFeature: strconv.Itoa(len(columns)), NumTarget: "1"}
	l.Objective = xgbObjective{Name: objective, Param: map[string]string{"scale_pos_weight": "1"}}
	l.Booster.Name = "gbtree"
	m := &l.Booster.Model
	m.Param = map[string]string{"num_parallel_tree": "1", "num_trees": strconv.Itoa(len(f.Trees))}
	m.IterationPtr = []int{0}
	m.TreeInfo, m.Trees = make([]int, len(f.Trees)), make([]xgbTree, 0, len(f.Trees))
	for i, t := range f.Trees {
		for _, n := range t {
			if n.Feature != forest.Leaf && columns[n.Feature].Type == category {
				return fmt.Errorf("tree %d splits on the category %q, want splits on numbers only", i, columns[n.Feature].Name)
			}
		}
		m.IterationPtr = append(m.IterationPtr, i+1)
		m.Trees = append(m.Trees, xgbTreeOf(i, t, len(columns)))
	}
	return json.NewEncoder(w).Encode(doc)
}

// xgbNoParent is the parent of a root: the largest int32.
const xgbNoParent = math.MaxInt32

func xgbTreeOf(id int, t forest.Tree, columns int) xgbTree {
	n := len(t)
	x := xgbTree{
		ID: id, Parents: make([]int, n), Left: make([]int, n), Right: make([]int, n), Indices: make([]int, n),
		DefaultLeft: make([]int, n), SplitType: make([]int, n), Conditions: make([]xgbNumber, n),
		BaseWeights: make([]xgbNumber, n), LossChanges: make([]xgbNumber, n), SumHessian: make([]xgbNumber, n),
		Categories: []int{}, CategoriesNodes: []int{}, CategoriesSegments: []int{}, CategoriesSizes: []int{},
		Param: map[string]string{"num_deleted": "0", "num_feature": strconv.Itoa(columns), "num_nodes": strconv.Itoa(n), "size_leaf_vector": "1"},
	}
	x.Parents[0] = xgbNoParent
	splits := 0
	for i, node := range t {
		x.Conditions[i] = xgbNumber(node.Value)
		if node.Feature == forest.Leaf {
			x.Left[i], x.Right[i], x.BaseWeights[i] = -1, -1, xgbNumber(node.Value)
			continue
		}
		left := 2*splits + 1
		splits++
		x.Left[i], x.Right[i], x.Indices[i], x.DefaultLeft[i] = left, left+1, node.Feature, 1
		x.Parents[left], x.Parents[left+1] = i, i
	}
	return x
}

// The model document, as XGBoost names it. Statistics that only describe training
// (gains, hessians) are 0: the reader wants the keys.
type xgbDocument struct {
	Learner xgbLearner `json:"learner"`
	Version [3]int     `json:"version"`
}

type xgbLearner struct {
	Attributes struct{}        `json:"attributes"`
	Names      []string        `json:"feature_names"`
	Types      []string        `json:"feature_types"`
	Booster    xgbBooster      `json:"gradient_booster"`
	Param      xgbLearnerParam `json:"learner_model_param"`
	Objective  xgbObjective    `json:"objective"`
}

type xgbLearnerParam struct {
	BaseScore        string `json:"base_score"`
	BoostFromAverage string `json:"boost_from_average"`
	NumClass         string `json:"num_class"`
	NumFeature       string `json:"num_feature"`
	NumTarget        string `json:"num_target"`
}

type xgbObjective struct {
	Name  string            `json:"name"`
	Param map[string]string `json:"reg_loss_param"`
}

type xgbBooster struct {
	Model xgbModel `json:"model"`
	Name  string   `json:"name"`
}

type xgbModel struct {
	Param        map[string]string `json:"gbtree_model_param"`
	IterationPtr []int             `json:"iteration_indptr"`
	TreeInfo     []int             `json:"tree_info"`
	Trees        []xgbTree         `json:"trees"`
}

// xgbNumber is a number of a list of reals. XGBoost's reader tells integers from
// reals and refuses a list that starts with 0 where it wants 0.0.
type xgbNumber float32

func (n xgbNumber) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'E', -1, 32), nil
}

type xgbTree struct {
	BaseWeights        []xgbNumber       `json:"base_weights"`
	Categories         []int             `json:"categories"`
	CategoriesNodes    []int             `json:"categories_nodes"`
	CategoriesSegments []int             `json:"categories_segments"`
	CategoriesSizes    []int             `json:"categories_sizes"`
	DefaultLeft        []int             `json:"default_left"`
	ID                 int               `json:"id"`
	Left               []int             `json:"left_children"`
	LossChanges        []xgbNumber       `json:"loss_changes"`
	Parents            []int             `json:"parents"`
	Right              []int             `json:"right_children"`
	Conditions         []xgbNumber       `json:"split_conditions"`
	Indices            []int             `json:"split_indices"`
	SplitType          []int             `json:"split_type"`
	SumHessian         []xgbNumber       `json:"sum_hessian"`
	Param              map[string]string `json:"tree_param"`
}
