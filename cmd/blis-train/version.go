package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result/folder"
)

// A release is stamped with these (-ldflags -X); go build inside a checkout knows them too.
var releaseCommit, releaseDate string

// versionText is the version with commit, date, compiler and platform: what a report of
// a fault needs.
func versionText() string {
	commit := releaseCommit
	date := releaseDate
	goVersion := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		built := stat.Keyed(info.Settings, func(s debug.BuildSetting) (string, string) { return s.Key, s.Value })
		if commit == "" {
			commit = built["vcs.revision"]
			date = built["vcs.time"]
			if built["vcs.modified"] == "true" {
				commit += ", changed"
			}
		}
		if v := info.Main.Version; commit == "" && strings.HasPrefix(v, "v") { // go install PATH@VERSION
			commit = "of " + v
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	if date != "" {
		date = ", " + date
	}
	specs := stat.Map(features.Versions(), func(v features.Version) string { return string(v) })
	return fmt.Sprintf("%s (commit %s%s, %s, %s/%s, specs %s)", folder.ToolVersion, commit, date, goVersion, runtime.GOOS, runtime.GOARCH,
		strings.Join(specs, ", "))
}
