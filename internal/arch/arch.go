// Package arch holds the tests that keep the house in order: which room may
// import which, which rooms are pure, and that no room is missing from the map.
package arch
