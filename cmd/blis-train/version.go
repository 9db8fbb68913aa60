package main

import (
	"fmt"
	"runtime/debug"
)

// toolVersion is written into every document; a release build may set it with -ldflags -X.
var toolVersion = "0.1.0"

func versionText() string {
	commit, goVersion := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return fmt.Sprintf("%s (commit %s, %s, spec versions 1.0 and 1.1)", toolVersion, commit, goVersion)
}
