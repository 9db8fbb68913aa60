// Package faults tries hand-made faults on the built program: damaged, foreign
// and hostile recordings, tables, settings and surroundings, each with what must
// happen. Its tests are the whole of it: a sample runs with every test, all of
// them with `make eval`.
package faults
