// Package forest evaluates boosted regression trees. It imports the standard
// library only, allocates nothing per prediction and never trains, so that a
// router can import it and predict in process.
//
// A [Forest] is data: a base and trees. [Forest.Compile] checks it once and
// returns an [Evaluator], which is safe for concurrent use.
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
// children of the k-th split, counted from 0, stand at places 2k+1 and 2k+2.
package forest
