// Package export turns a fit into files: the native artifact, and the formats
// of the simulators and autoscalers that read coefficients.
//
//	native         coeff.Set as YAML; everything needed to reproduce it is inside
//	blis-defaults  BLIS's defaults.yaml: 3 alpha and 11 beta by position
//	blis-registry  a CoefficientSet of the BLIS registry, one entry a term
//	wva            VariantAutoscaling resources with four parameters an accelerator
//	inferno        model-data.json with three parameters a model and accelerator
//
// In goes a [Source]: fit.json, validation.json when there is one, and for the
// two linearised formats a function that predicts a step of one configuration.
// Out come [File]s. A foreign format has no room for provenance (BLIS calls an
// unknown key a fatal error), so each comes with a sidecar that has: inputs
// with hashes, every value with its origin and what it does in the consumer,
// the equivalent command lines, warnings.
//
// What it promises: the same source gives the same bytes. What it refuses,
// unless [Options].Force: negative and non-finite values, and values the data
// did not teach. Every refusal says what the value would do in the consumer.
//
// Two more parts of an artifact's life are here. [Check] compares an artifact
// with a deployment, [Diff] with another artifact; [Append] and [ReadLedger]
// keep the ledger of fits.
//
// The formats as read, and the commits they were read at, are in docs/formats.md.
package export
