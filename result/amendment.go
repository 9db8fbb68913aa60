package result

// Amendment is one proposed change of the specification, tried on the rows of a fit
// (spec#amendments). Errors are relative, null where there are no rows to say.
type Amendment struct {
	Name      string   `json:"name"`
	Doc       string   `json:"doc"`
	Model     string   `json:"model"`   // steps | waits
	Trigger   string   `json:"trigger"` // when it is worth a try
	Value     *float64 `json:"value"`   // what the trigger reads; null: nothing to read
	Threshold float64  `json:"threshold"`
	Triggered bool     `json:"triggered"`
	// Hold-out error without and with it: MAPE of steps, of means over 10 seconds of waits.
	Without *float64 `json:"without"`
	With    *float64 `json:"with"`
	// Median error over the configurations left out; null for one configuration.
	WithoutLeftOut *float64 `json:"without_left_out"`
	WithLeftOut    *float64 `json:"with_left_out"`
	Wins           bool     `json:"wins"`
	Note           string   `json:"note"` // why there is no figure; empty when there is
}

// Verdict is the outcome in words.
func (a *Amendment) Verdict() string {
	switch {
	case a.Note != "":
		return a.Note
	case a.Wins && a.Triggered:
		return "wins"
	case a.Wins:
		return "wins, not triggered"
	}
	return "does not win"
}
