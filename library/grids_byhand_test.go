package library

import (
	"reflect"
	"testing"
)

// TestMixedGrids: a quarter of the second and three of the first, at the points that both have; a row without one is
// left out.
func TestMixedGrids(t *testing.T) {
	a := grid{byRequests: true, x: []float64{1, 2, 4, 8}, rows: []curve{{[]float64{10, 20, 30}, []float64{4, 8, 16}}, {[]float64{10}, []float64{1}}, {[]float64{10}, []float64{40}},
		{[]float64{10}, []float64{80}}}}
	b := grid{x: []float64{1, 4, 8}, rows: []curve{{[]float64{10, 30, 50}, []float64{8, 4, 2}}, {[]float64{20}, []float64{1}}, {[]float64{10}, []float64{0}}}}
	want := grid{byRequests: true, x: []float64{1, 8}, rows: []curve{{[]float64{10, 30}, []float64{5, 13}}, {[]float64{10}, []float64{60}}}}
	if got := mixGrids(a, b, 0.25); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := mixGrids(a, grid{}, 0.25); len(got.x) != 0 || len(got.rows) != 0 {
		t.Errorf("with nothing: got %+v", got)
	}
}
