package forest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Leaf is the Feature of a leaf.
const Leaf = -1

// Node is a split or a leaf.
type Node struct {
	Feature int     // column of the split; Leaf for a leaf
	Value   float32 // threshold of a split, addend of a leaf
}

// Tree is a tree's nodes, breadth first. The children of the k-th split,
// counted from 0, stand at 2k+1 and 2k+2.
type Tree []Node

// Depth is the number of splits on the longest way to a leaf.
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

// check verifies the form of a tree over a number of columns.
func (t Tree) check(features int) error {
	splits := 0
	for i, n := range t {
		switch {
		case n.Feature < Leaf || n.Feature >= features:
			return fmt.Errorf("node %d: got column %d, want 0 to %d", i, n.Feature, features-1)
		case math.IsNaN(float64(n.Value)) || math.IsInf(float64(n.Value), 0):
			return fmt.Errorf("node %d: got %g, want a finite number", i, n.Value)
		case n.Feature != Leaf && 2*splits+1 <= i:
			return fmt.Errorf("node %d: its children would stand before it, want nodes breadth first", i)
		case n.Feature != Leaf:
			splits++
		}
	}
	if len(t) != 2*splits+1 {
		return fmt.Errorf("got %d nodes with %d splits, want %d", len(t), splits, 2*splits+1)
	}
	return nil
}

// MarshalText writes the tree as one line.
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
