package report

import "strconv"

func Plain(s string) Cell { return Cell{Text: s} }

func Prose(s string) Cell { return Cell{Text: s, Class: "w"} }

func Name(s string) Cell { return Cell{Text: s, Class: "id"} }

// Number is a right-aligned cell; nil is shown as unknown and sorts last.
func Number(v *float64) Cell { return Shown(v, Short) }

// Percent is number for a fraction.
func Percent(v *float64) Cell { return Shown(v, Pct) }

// millis is number for microseconds shown as milliseconds.
func millis(v *float64) Cell {
	return Shown(v, func(us float64) string { return Short(us / 1000) })
}

func Shown(v *float64, print func(float64) string) Cell {
	if v == nil {
		return Cell{Text: Unknown, Class: "n dim"}
	}
	return Cell{Text: print(*v), Key: sortKey(*v), Class: "n"}
}

func Num(v float64) Cell { return Number(&v) }

func PercentOf(v float64) Cell { return Percent(&v) }

func Count(n int) Cell {
	return Count64(int64(n))
}

// ZeroDim greys a zero, so that the counts that matter stand out.
func ZeroDim(n int) Cell {
	c := Count(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}

// headed puts a sub-heading before blocks, when there are any.
func headed(title string, bs []Block) []Block {
	if len(bs) == 0 {
		return nil
	}
	return append([]Block{{Heading: title}}, bs...)
}

func Count64(n int64) Cell {
	return Cell{Text: Thousands(n), Key: strconv.FormatInt(n, 10), Class: "n"}
}

func dim64(n int64) Cell {
	c := Count64(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}
