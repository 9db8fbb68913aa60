// Package forest evaluates boosted regression trees. It imports the standard
// library only, allocates nothing per prediction and never trains, so that a
// router can import it and predict in process.
//
// A [Forest] is the data of a model: a base and trees. [Forest.Compile] checks it once and returns an
// [Evaluator], which is safe for concurrent use. A [Predictor] is a
// set of forests, read from predictor.json.
//
// # The rule of a split
//
// A row goes left where float32(x) < threshold, and where x is NaN (unknown).
// Everything else goes right. Thresholds, leaves and their sum are float32, the
// sum in the order of the trees. This is the rule of XGBoost's models (x <
// split_condition in float32, default_left), so that an exported forest predicts
// what this package predicts, to the bit before the link.
//
// # Trees as text
//
// A tree is written as one line, its nodes breadth first: "2<0.35 =-0.1 =0.2"
// splits column 2 at 0.35 and adds -0.1 on the left, 0.2 on the right. The
// children of the k-th split, counted from 0, have indices 2k+1 and 2k+2.
package forest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxFeatures is the largest number of columns of a forest.
const MaxFeatures = 256

// maxNodes is how many nodes a packed left child can address.
const maxNodes = 1 << 24

// Forest is a sum of trees: base + the leaf of every tree.
type Forest struct {
	Base  float64 `json:"base"`
	Trees []Tree  `json:"trees"`
}

// Evaluator is a checked forest, laid out for evaluation.
type Evaluator struct {
	base     float32
	features int       // number of columns
	nodes    []packed  // of all trees, one after the other
	leaves   []float32 // by node; 0 at a split
	roots    []uint32  // of each tree, its place in nodes
	depth    []uint8   // of each group of trees, that of the deepest
}

// packed is a node in eight bytes. A row whose key of column next&0xff is at least the threshold goes
// to node next>>8 + 1, any other to next>>8. A leaf has a threshold above all keys and its own index
// in next>>8, so that a row stays there: a tree of depth n is evaluated in exactly n steps, without
// a branch that depends on the row.
type packed struct {
	threshold int32
	next      uint32
}

// key returns an integer for a float32, in the order of the floats. NaN comes before all of them,
// and both zeros are equal.
func key(v float32) int32 {
	if v != v { // NaN
		return math.MinInt32
	}
	bits := int32(math.Float32bits(v + 0)) // -0 + 0 = +0
	// The bits of floats are in order as integers, those of negative ones in the reverse order: all but
	// their sign are inverted.
	return bits ^ (bits >> 31 & math.MaxInt32)
}

// group is how many trees are walked at the same time, so that their cache misses overlap.
const group = 4

// Compile returns an evaluator of the forest, after it has checked the forest over a number of
// columns.
func (f *Forest) Compile(features int) (*Evaluator, error) {
	if features < 1 || features > MaxFeatures {
		return nil, fmt.Errorf("forest: got %d columns, want 1 to %d", features, MaxFeatures)
	}
	if math.IsNaN(f.Base) || math.IsInf(f.Base, 0) {
		return nil, fmt.Errorf("forest: base: got %g, want a finite number", f.Base)
	}
	e := &Evaluator{base: float32(f.Base), features: features}
	for i, t := range f.Trees {
		if err := t.checkNodes(features); err != nil {
			return nil, fmt.Errorf("forest: tree %d: %w", i, err)
		}
		if len(e.nodes)+len(t) > maxNodes {
			return nil, fmt.Errorf("forest: tree %d: got more than %d nodes in all", i, maxNodes)
		}
		depth := t.Depth()
		if depth > math.MaxUint8 {
			return nil, fmt.Errorf("forest: tree %d: got depth %d, want at most %d", i, depth, math.MaxUint8)
		}
		if i%group == 0 {
			e.depth = append(e.depth, 0)
		}
		e.depth[i/group] = max(e.depth[i/group], uint8(depth))
		e.appendTree(t)
	}
	return e, nil
}

// appendTree packs a tree after those before it. Indices in its nodes become absolute.
func (e *Evaluator) appendTree(t Tree) {
	root := uint32(len(e.nodes))
	e.roots = append(e.roots, root)
	left := root + 1
	for i, n := range t {
		if n.Feature == Leaf {
			e.nodes = append(e.nodes, packed{threshold: math.MaxInt32, next: (root + uint32(i)) << 8})
			e.leaves = append(e.leaves, n.Value)
			continue
		}
		e.nodes = append(e.nodes, packed{threshold: key(n.Value), next: left<<8 | uint32(n.Feature)})
		e.leaves = append(e.leaves, 0)
		left += 2
	}
}

// Features returns the number of columns a row needs.
func (e *Evaluator) Features() int { return e.features }

// Row is a row in the form that splits compare. Fill one once to evaluate several forests on it.
type Row [MaxFeatures]int32

// Fill rounds x to float32; it panics when x has more than MaxFeatures values.
func (r *Row) Fill(x []float64) {
	for i, v := range x {
		r[i] = key(float32(v))
	}
}

// Margin returns base + the leaf of every tree, summed in that order. len(x) must be Features().
func (e *Evaluator) Margin(x []float64) float64 {
	if len(x) != e.features {
		panic(fmt.Sprintf("forest: got a row of %d, want %d", len(x), e.features))
	}
	var r Row
	r.Fill(x)
	return e.MarginRow(&r)
}

// MarginRow returns what Margin does for a filled row.
func (e *Evaluator) MarginRow(r *Row) float64 {
	sum := e.base
	nodes := e.nodes
	leaves := e.leaves
	i := 0
	for ; i+group <= len(e.roots); i += group {
		a := e.roots[i]
		b := e.roots[i+1]
		c := e.roots[i+2]
		d := e.roots[i+3]
		for range e.depth[i/group] {
			a = step(nodes, r, a)
			b = step(nodes, r, b)
			c = step(nodes, r, c)
			d = step(nodes, r, d)
		}
		sum += leaves[a]
		sum += leaves[b]
		sum += leaves[c]
		sum += leaves[d]
	}
	for ; i < len(e.roots); i++ {
		a := e.roots[i]
		for range e.depth[i/group] {
			a = step(nodes, r, a)
		}
		sum += leaves[a]
	}
	return float64(sum)
}

// step returns the node after node i; a leaf is followed by itself.
func step(nodes []packed, r *Row, i uint32) uint32 {
	n := nodes[i]
	isLeft := uint64(int64(r[uint8(n.next)])-int64(n.threshold)) >> 63 // the sign bit: 1 for a key below the threshold
	return n.next>>8 + 1 - uint32(isLeft)
}

// Leaf is the Feature of a leaf.
const Leaf = -1

// Node is a split or a leaf.
type Node struct {
	Feature int     // column of the split; Leaf for a leaf
	Value   float32 // threshold of a split, addend of a leaf
}

// Tree is a tree's nodes, breadth first. The children of the k-th split,
// counted from 0, have indices 2k+1 and 2k+2.
type Tree []Node

// Depth returns the number of splits on the longest path to a leaf.
func (t Tree) Depth() int {
	deepest := 0
	at := make([]int, len(t)) // depth of each node
	splits := 0
	for i, n := range t {
		deepest = max(deepest, at[i])
		if n.Feature == Leaf {
			continue
		}
		left := 2*splits + 1
		if left+1 < len(t) {
			at[left], at[left+1] = at[i]+1, at[i]+1
		}
		splits++
	}
	return deepest
}

// checkNodes verifies the shape of a tree, its numbers and its columns.
func (t Tree) checkNodes(features int) error {
	splits := 0
	for i, n := range t {
		switch {
		case n.Feature < Leaf || n.Feature >= features:
			return fmt.Errorf("node %d: got column %d, want 0 to %d", i, n.Feature, features-1)
		case math.IsNaN(float64(n.Value)) || math.IsInf(float64(n.Value), 0):
			return fmt.Errorf("node %d: got %g, want a finite number", i, n.Value)
		case n.Feature != Leaf && 2*splits+1 <= i:
			return fmt.Errorf("node %d: its children would come before it, want nodes breadth first", i)
		case n.Feature != Leaf:
			splits++
		}
	}
	if len(t) != 2*splits+1 {
		return fmt.Errorf("got %d nodes with %d splits, want %d", len(t), splits, 2*splits+1)
	}
	return nil
}

// MarshalText returns the tree as one line.
func (t Tree) MarshalText() ([]byte, error) {
	b := make([]byte, 0, 12*len(t))
	for i, n := range t {
		if i > 0 {
			b = append(b, ' ')
		}
		if n.Feature == Leaf {
			b = append(b, '=')
		} else {
			b = append(strconv.AppendInt(b, int64(n.Feature), 10), '<')
		}
		b = strconv.AppendFloat(b, float64(n.Value), 'g', -1, 32)
	}
	return b, nil
}

// UnmarshalText reads MarshalText's form. Compile checks the tree's shape.
func (t *Tree) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	nodes := make(Tree, len(words))
	for i, word := range words {
		number, isLeaf := strings.CutPrefix(word, "=")
		n := Node{Feature: Leaf}
		if !isLeaf {
			column, threshold, ok := strings.Cut(word, "<")
			var err error
			if n.Feature, err = strconv.Atoi(column); err != nil || !ok || n.Feature < 0 {
				return fmt.Errorf("forest: node %d: got %q, want column<threshold or =value", i, word)
			}
			number = threshold
		}
		v, err := strconv.ParseFloat(number, 32)
		if err != nil {
			return fmt.Errorf("forest: node %d: got %q, want a number after < or =", i, word)
		}
		n.Value = float32(v)
		nodes[i] = n
	}
	*t = nodes
	return nil
}
