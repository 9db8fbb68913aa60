package vllm

// This file reads and compares releases of vLLM.

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is a release of vLLM, major and minor: {0, 19}. The zero value means none.
type Release [2]int

// Before reports whether r is an earlier release than other.
func (r Release) Before(other Release) bool {
	return r[0] < other[0] || r[0] == other[0] && r[1] < other[1]
}

// String returns the release as in "0.19".
func (r Release) String() string { return fmt.Sprintf("%d.%d", r[0], r[1]) }

// ParseRelease returns the release in a version: "0.15.1 (fork)", "v0.11.0rc1". ok is false if the
// text does not begin with two numbers. It is also false for "0.1.dev12345+g0123abc": builds from a
// checkout without tags have such versions, and they are much newer than 0.1.
func ParseRelease(version string) (r Release, ok bool) {
	version = strings.TrimPrefix(strings.TrimSpace(version), "v")
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return Release{}, false
	}
	for i := range r {
		isDigit := func(c rune) bool { return c >= '0' && c <= '9' }
		rest := strings.TrimLeftFunc(parts[i], isDigit)
		n, err := strconv.Atoi(strings.TrimSuffix(parts[i], rest))
		if err != nil {
			return r, false
		}
		r[i] = n
	}
	isCheckout := r == Release{0, 1} && len(parts) > 2 && strings.HasPrefix(parts[2], "dev")
	return r, !isCheckout
}

// Release returns the release of the engine's version; ok is false where the version is not a
// release number.
func (e *Engine) Release() (r Release, ok bool) { return ParseRelease(e.VLLMVersion) }

// IsSince reports whether the engine's release is r or later. A version that is not a release
// number counts as the newest release.
func (e *Engine) IsSince(r Release) bool {
	own, known := e.Release()
	return !known || !own.Before(r)
}
