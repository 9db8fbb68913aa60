package table

// ReadFile reads one table file into memory.
func ReadFile[T any](path string) ([]T, error) {
	c, err := OpenFile[T](path)
	if err != nil {
		return nil, err
	}
	return c.All()
}
