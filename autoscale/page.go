package autoscale

// This file makes the page of queue.json; page_sections.go has its sections.

import (
	"github.com/blis-train/blis-train/report"
)

// Page returns the page of queue.json as HTML, and its sections: parameters and their origin,
// errors, what the windows determine, online tuners, sizes and allocation.
func Page(q *Queue) ([]byte, []report.Section, error) {
	return report.Page(headOf(q), []report.Section{
		parameterSection(q), scoreSection(q), showSection(q), trackSection(q), sizeSection(q), planSection(q),
		originSection(q),
	})
}
