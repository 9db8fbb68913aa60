package table

import "reflect"

// Column is a column of a table, for tests outside the package.
type Column = column

// Columns lists the columns of the table whose rows are of type T.
func Columns[T any]() []Column { return columnsOf(reflect.TypeFor[T]()) }

// ReadFile reads one table file; the extension says the format.
func ReadFile[T any](path string) ([]T, error) {
	c, err := OpenFile[T](path)
	if err != nil {
		return nil, err
	}
	return c.all()
}
