package main

import (
	"fmt"
	"runtime/debug"

	"github.com/blis-train/blis-train/pipeline/folder"
)

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
	return fmt.Sprintf("%s (commit %s, %s, spec versions 1.0 and 1.1)", folder.ToolVersion, commit, goVersion)
}
