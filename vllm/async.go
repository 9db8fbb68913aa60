package vllm

// This file decides whether an engine schedules asynchronously: whether it prepares a step while the
// device runs the one before.

import (
	"strings"
)

// AsyncSchedulingSince is the first vLLM version that schedules asynchronously by default (release
// notes of v0.14.0, "Breaking Changes").
var AsyncSchedulingSince = Release{0, 14}

// IsAsync reports whether the engine schedules asynchronously: as stated, else as vLLM decides for
// its version. A version that cannot be read counts as the newest.
func (e *Engine) IsAsync() bool {
	if e.AsyncScheduling.OK {
		return e.AsyncScheduling.V
	}
	v, known := e.Release()
	return (!known || !v.Before(AsyncSchedulingSince)) && e.AsyncExcluded() == ""
}

// AsyncExcluded returns the setting because of which vLLM switches asynchronous scheduling off when
// it is not requested; "" if there is none: the executor Ray, the CPU back end, and drafters that
// it cannot overlap (vllm/config/vllm.py of 0.15.1 to 0.33.0).
func (e *Engine) AsyncExcluded() string {
	switch {
	case e.Extra["distributed_executor_backend"] == "ray":
		return "the executor ray"
	case e.Extra["device"] == "cpu" || strings.HasSuffix(e.VLLMVersion, "+cpu"):
		return "the CPU back end"
	}
	if s, err := e.Speculation(); err == nil && s != nil && !s.IsEagle() {
		if since, ok := asyncDraftersSince[s.Method]; !ok || !e.IsSince(since) {
			return "drafts by " + s.Method
		}
	}
	return ""
}

// asyncDraftersSince has, for drafters other than EAGLE and MTP, the first release that schedules
// asynchronously with them. For n-gram that is 0.33 with model runner V2, its default.
var asyncDraftersSince = map[string]Release{
	"ngram_gpu":   {0, 19},
	"dflash":      {0, 23},
	"dspark":      {0, 26},
	"draft_model": {0, 28},
	"ngram":       {0, 33},
}
