package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
)

// A release is stamped with these (-ldflags -X); go build inside a checkout knows them too.
var releaseCommit, releaseDate string

// versionText is the version with commit, date, compiler and platform: what a report of
// a fault needs.
func versionText() string {
	commit, date, goVersion := releaseCommit, releaseDate, runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		built := map[string]string{}
		for _, s := range info.Settings {
			built[s.Key] = s.Value
		}
		if commit == "" {
			commit, date = built["vcs.revision"], built["vcs.time"]
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
	var specs []string
	for _, v := range features.Versions() {
		specs = append(specs, string(v))
	}
	return fmt.Sprintf("%s (commit %s%s, %s, %s/%s, specs %s)", folder.ToolVersion, commit, date, goVersion, runtime.GOOS, runtime.GOARCH,
		strings.Join(specs, ", "))
}
