package features

import (
	"reflect"

	"github.com/blis-train/blis-train/internal/stat"
)

// field names one number of an input as golden vectors, tables and formulas do.
type field[T any] struct {
	name, unit string
	isFrac     bool // legal range 0..1
	at         func(*T) *float64
}

// fieldsOf are the fields of an input, as their tags say.
func fieldsOf[T any]() (out []field[T]) {
	for i, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if f.Tag.Get("name") == "" {
			continue
		}
		out = append(out, field[T]{f.Tag.Get("name"), f.Tag.Get("unit"), f.Tag.Get("range") == "0..1", func(in *T) *float64 {
			return reflect.ValueOf(in).Elem().Field(i).Addr().Interface().(*float64)
		}})
	}
	return out
}

var (
	stepFields  = fieldsOf[StepInput]()
	queueFields = fieldsOf[QueueInput]()
)

// Quantity is one named number: an input, a dimension or a derived constant.
type Quantity struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Formula string  `json:"formula,omitempty"` // how it is derived; empty when given
}

// Values lists the input's fields in a fixed order under the names that tables,
// golden vectors and formulas use.
func (in *StepInput) Values() []Quantity {
	return stat.Map(stepFields, func(f field[StepInput]) Quantity { return Quantity{Name: f.name, Value: *f.at(in), Unit: f.unit} })
}
