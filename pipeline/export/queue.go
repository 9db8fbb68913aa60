package export

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/export/scaler"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// QueueOptions are those of an export of queue.json.
type QueueOptions struct {
	Options
	Key           string  // inferno-models: perfParms or serviceParms
	Namespace     string  // wva-slo
	UnitCost      float64 // cents per device and hour
	TTFTMs, ITLMs float64 // wva-slo
	Physical      bool    // physical parameters in place of the effective ones
}

// Queue writes a queueing calibration in the format of an autoscaler, with a sidecar.
func Queue(q *result.Queue, in result.Input, f Format, o QueueOptions) (*Output, error) {
	if !slices.Contains(scaler.Formats, scaler.Format(f)) {
		return nil, trace.Errorf(unknownFormat, "format of a queueing calibration: got %q, want %s", f, trace.OneOf(scaler.Formats)).
			WithHint("blis-train fit OUT writes fit.json, which the others are made of")
	}
	out, err := scaler.Calibration(q, scaler.Format(f), scaler.Options{
		Version: o.ConsumerVersion, Config: o.Config, Key: o.Key, Name: o.Name, Namespace: o.Namespace,
		UnitCost: o.UnitCost, TTFTMs: o.TTFTMs, ITLMs: o.ITLMs,
		Physical: o.Physical, SLOClass: scaler.ConfigRef{Name: o.SLOClassName, Key: o.SLOClassKey},
		ModelName:   modelNamer(f, o.Name),
		Accelerator: shortName,
	})
	if err != nil {
		return nil, err
	}
	side := NewSidecar(&q.Header, in, string(f), o.Command, out.ReadBy)
	side.SpecVersion, side.Warnings = textOrNull(q.Flavour), append(side.Warnings, out.Warnings...)
	for i := range q.Servers {
		s := &q.Servers[i]
		if o.Config == "" || s.ID == o.Config {
			side.Values = append(side.Values, queueValues(s, o.Physical)...)
			side.Configs = append(side.Configs, queueConfig(s))
		}
	}
	return side.Beside(out.Warnings, File{"", out.Data})
}

// CheckVersion says why a version of the consumer does not read a format; empty: not checked.
func CheckVersion(f Format, version string) error {
	if version == "" {
		return nil
	}
	if !slices.Contains(scaler.Formats, scaler.Format(f)) {
		return trace.Errorf(unknownFormat, "--consumer-version: got it with --format %s, want one of an autoscaler's files: %s", f,
			trace.OneOf(scaler.Formats))
	}
	return scaler.ReaderOf(scaler.Format(f)).CheckVersion(version)
}

// modelNamer is how a format calls a model: a Kubernetes name, or the last part of its id.
func modelNamer(f Format, prefix string) func(id string) string {
	if f == FormatWVA || f == Format(scaler.WVASLO) {
		return func(id string) string { return resourceName(prefix, id) }
	}
	return registryModel
}

func queueValues(s *result.QueueServer, physical bool) []SideValue {
	params := s.Effective
	if physical {
		params = s.Physical
	}
	var out []SideValue
	for i := range params {
		p := &params[i]
		out = append(out, SideValue{
			Key: s.ID + "." + p.Name, Name: p.Name, Value: result.OrNull(p.Value), Unit: p.Unit, CI95: p.CI95, Identified: p.Identified,
			Learned: p.Identified == "measured", Origin: "queue fit", Effect: "parameter of the autoscaler's queueing model",
		})
	}
	return out
}

func queueConfig(s *result.QueueServer) SideConfig {
	c := SideConfig{Label: s.ID, Seats: int64(s.Limits.MaxBatch), Note: s.Reason}
	if s.Load != nil {
		c.PromptTokens, c.OutputTokens = &s.Load.PromptTokens, &s.Load.OutputTokens
	}
	return c
}
