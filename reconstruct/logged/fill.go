package logged

// This file turns the logged passes of a run into step summaries.

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Fill adds steps to a run that has iterations but no step summaries; any other run is unchanged.
// If nothing in the recording gives the time of a pass, the run gets no steps, and
// Aggregate.Refused states why. It returns an error for a deployment that features.New rejects.
func Fill(run *trace.Run, dep *deploy.Deployment) error {
	if len(run.Iterations) == 0 || len(run.Steps) > 0 {
		return nil
	}
	drafts := dep.Engine.SpeculativeDecoding
	dep = dep.WithoutDrafts()
	space, err := features.New(features.DefaultVersion(dep), dep)
	if err != nil {
		return err
	}
	f := &filler{run: run, dep: dep, space: space, out: &trace.Aggregate{Drafts: drafts}}
	run.Aggregate = f.out
	f.passes = passesOf(run.Iterations, dep, drafts)
	f.isFromChunks = run.Iterations[0].Form == trace.IterationChunks
	f.relabelFirstDecodes()
	if !f.isFromChunks {
		f.undoClockJumps()
	}
	f.fillSteps()
	return nil
}

// filler makes the steps of one run.
type filler struct {
	run          *trace.Run
	dep          *deploy.Deployment
	space        *features.Space
	passes       []pass
	out          *trace.Aggregate
	isFromChunks bool // passes found behind clients' chunks: on the clients' clock, with every sum known
	requests     []clientRequest
}

// fillSteps makes the steps: it audits the times, puts passes and clients on one clock, and fills
// in contexts. Each needs what the ones before have set.
func (f *filler) fillSteps() {
	if f.refuseIf(f.checkRecords()) {
		return
	}
	a := f.auditTimes()
	f.out.Audit = a.figures
	if f.refuseIf(a.refused) {
		return
	}
	f.setEnds(&a)
	f.alignClients(&a)
	f.measureOtherClients()
	f.fillContexts()
	if !f.refuseIf(f.checkClientCounts()) {
		f.makeSteps(&a)
		f.countWaiting()
	}
}

// refuseIf stores an error as the reason why the run has no steps, and reports whether there is
// one.
func (f *filler) refuseIf(why *trace.Error) bool {
	if why != nil {
		f.out.Refused = why
	}
	return why != nil
}

// addFinding adds a finding about the run to the aggregate.
func (f *filler) addFinding(code trace.Code, format string, args ...any) {
	f.out.Findings = append(f.out.Findings, trace.Findingf(code, f.run.ID+": "+format, args...))
}

// allPasses returns the option with which the engine records every pass.
func (f *filler) allPasses() string {
	if f.passes[0].it.Form == trace.IterationSGLang {
		return "start SGLang with --decode-log-interval 1 and keep precise stamps (SGLANG_LOG_MS=1, docker logs --timestamps)"
	}
	return "set DYN_FPM_MODE=full (with --fpm-trace or DYN_FPM_TRACE=1)"
}

// checkRecords returns an error if the records are not single passes with known token counts.
func (f *filler) checkRecords() *trace.Error {
	sampled := 0         // records of a producer that leaves passes out
	encoders := 0        // passes that also ran a multimodal encoder
	contexts := int64(0) // prompts of these
	several := 0         // passes with more generation tokens than requests
	decoding := 0        // passes with generation requests
	for i := range f.passes {
		it := f.passes[i].it
		if it.Sampled {
			sampled++
		}
		if f.passes[i].hasEncoder() {
			encoders++
			contexts += it.ContextReqs
		}
		if it.GenerationReqs > 0 {
			decoding++
			if it.GenerationTokens > it.GenerationReqs {
				several++
			}
		}
	}
	switch {
	case sampled > 0:
		return trace.Errorf(codeNoStepTimes, "run %s: %d of %d records are samples, one of several passes",
			f.run.ID, sampled, len(f.passes)).WithHint(f.allPasses())
	case several*2 > decoding && !f.out.Drafts:
		return trace.Errorf(codeNoStepTimes,
			"run %s: %d of %d passes with decodes have more tokens than requests: speculative decoding",
			f.run.ID, several, decoding).
			WithHint("write vllm.speculative_config into run.yaml, as the server was started with it")
	}
	if encoders > 0 {
		f.addFinding(codeEncoderPass, "%d of %d passes, with %d prompts, also ran a multimodal encoder, which is not modelled: "+
			"they are left out of step times, and no replay has their time", encoders, len(f.passes), contexts)
	}
	if several > 0 && !f.out.Drafts {
		f.addFinding(codeFilledIn, "%d passes recompute preempted requests: they are left out of identification", several)
	}
	return nil
}
