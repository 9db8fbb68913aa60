package main

// Run is run, for the tests of package main_test.
var Run = run
