package main

// This file is the command version.

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result/folder"
)

// releaseCommit and releaseDate are set by the linker for a release (-ldflags -X). A build inside a
// checkout has both from the build information.
var releaseCommit, releaseDate string

// versionCommand returns the command version.
func versionCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:  "version",
		Usage: "print version, commit, compiler and platform",
		Description: `Example:
   blis-train version`,
	}, nil, func(_ *cli.Context, con *console) error {
		if con.json {
			return con.document(map[string]string{"version": versionText()})
		}
		_, err := fmt.Fprintln(con.out, "blis-train version", versionText())
		return err
	})
}

// versionText returns the version with commit, date, compiler, platform and the versions of the feature
// sets (spec#spec-version), all of which a bug report needs.
func versionText() string {
	commit := releaseCommit
	date := releaseDate
	goVersion := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		built := map[string]string{}
		for _, s := range info.Settings {
			built[s.Key] = s.Value
		}
		if commit == "" {
			commit = built["vcs.revision"]
			date = built["vcs.time"]
			if built["vcs.modified"] == "true" {
				commit += ", changed"
			}
		}
		if v := info.Main.Version; commit == "" && strings.HasPrefix(v, "v") { // go install PATH@VERSION records no commit
			commit = "of " + v
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	if date != "" {
		date = ", " + date
	}
	var featureVersions []string
	for _, v := range features.Versions() {
		featureVersions = append(featureVersions, string(v))
	}
	return fmt.Sprintf("%s (commit %s%s, %s, %s/%s, specs %s)", folder.ToolVersion, commit, date, goVersion,
		runtime.GOOS, runtime.GOARCH, strings.Join(featureVersions, ", "))
}
