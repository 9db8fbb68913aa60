package autoscale

import (
	"github.com/blis-train/blis-train/report"
)

// Page is the page of queue.json as one HTML file, and its sections: the parameters and where
// they come from, how well they hold, what online tuners would have said, and what follows.
func Page(q *Queue) ([]byte, []report.Section, error) {
	return report.Page(headOf(q), []report.Section{
		parameterSection(q), scoreSection(q), showSection(q), trackSection(q), sizeSection(q), planSection(q),
		originSection(q),
	})
}
