package table

import (
	"fmt"
	"strings"
)

// Markdown renders docs/tables.md from the struct tags.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Tables\n\nGenerated from the struct tags in `trace/run.go` (`go generate ./trace/table`); do not edit.\n\n")
	fmt.Fprintf(&b, "`extract` writes one folder `tables/run=<id>/` per engine run, one file per table (`<table>.parquet`, or `.arrow` "+
		"with `--format arrow`); a table without rows is not written. Schema version %s. "+
		"Columns marked *null* may be unknown. Stamps are int64 nanoseconds of the producer's monotonic clock unless the name says `wall`.\n",
		SchemaVersion)
	for _, t := range Tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| column | type | unit | null | meaning |\n|---|---|---|---|---|\n", t.Name, t.Doc)
		for _, c := range columnsOf(t.row) {
			null := ""
			if c.Nullable {
				null = "null"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Type, c.Unit, null, c.Doc)
		}
	}
	return b.String()
}
