// Package arch has the tests that keep the packages in order: which may
// import which, which are pure, and that none is missing from the map.
package arch
