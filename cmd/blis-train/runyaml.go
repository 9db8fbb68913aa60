package main

// This file writes the run.yaml of a run folder that has none, from the server's log in it.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/trace"
)

// runYAMLFile is the file that makes a folder a run folder.
const runYAMLFile = "run.yaml"

// checkHardwareFlag returns an error if --hardware (flag) names another device than the run.yaml name that is there
// already, which would be used instead without a message.
func checkHardwareFlag(name, flag string) error {
	if flag == "" {
		return nil
	}
	dep, err := loadDeployment(name)
	if err != nil {
		return nil // the extraction reports it, with its place
	}
	if sheet, ok := deploy.Datasheet(flag); ok {
		flag = sheet.Name
	}
	if flag == dep.Hardware.Name {
		return nil
	}
	return &option.Misuse{
		Msg:  fmt.Sprintf("--hardware: got %s, want that of %s, which is %s", flag, name, dep.Hardware.Name),
		Hint: "correct hardware.name in the file, or give --set hardware.name=" + flag,
	}
}

// writeMissingRunYAML writes the run.yaml of a folder that has a server's log and none, as init --from-log does.
// Other folders, and parents of run folders, are left as they are.
func (con *console) writeMissingRunYAML(c *cli.Context, dir string) error {
	name := filepath.Join(dir, runYAMLFile)
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return checkHardwareFlag(name, c.String("hardware"))
	}
	if below, _ := filepath.Glob(filepath.Join(dir, "*", runYAMLFile)); len(below) > 0 {
		return nil
	}
	log, stated := findStartLog(dir)
	hardware := c.String("hardware")
	if stated == nil && hardware == "" {
		return nil
	}
	draft := deploy.NewDraft()
	if hardware != "" {
		if sheet, ok := deploy.Datasheet(hardware); ok {
			hardware = sheet.Name
		}
		draft.Set("hardware.name", hardware)
	}
	if stated != nil {
		draft.Merge(stated)
	}
	if slices.Contains(draft.Missing(), "vllm.version") {
		draft.Set("vllm.version", predict.AssumedVersion)
		con.warn([]trace.Finding{trace.Findingf(deploy.VersionAssumed, "vllm.version: no log of the folder states it, so %s is assumed, and its defaults "+
			"and scheduler with it; correct it in %s", predict.AssumedVersion, name)})
	}
	draft.FillDefaults()
	draft.DropUnknown()
	model, err := con.modelConfig(draft, name)
	if err != nil {
		return err
	}
	draft.CountKVBlocks(model)
	con.warn(draft.Findings(model))
	if missing := draft.Missing(); len(missing) > 0 {
		why := "the folder has no log of a server's start to write it from"
		if stated != nil {
			why = log + " does not state all of it"
		}
		return trace.Errorf(deploy.BadSetting, "%s: no such file, and %s: missing %s", name, why, strings.Join(missing, ", ")).
			WithHint("--hardware NAME, config.json in the folder and the log from the server's start are enough; or " +
				"blis-train init --from-cmdline 'vllm serve ...' --hardware NAME -o " + name)
	}
	var text bytes.Buffer
	if err := draft.Write(&text); err != nil {
		return err
	}
	if err := files.Write(name, files.Readable(text.Bytes())); err != nil {
		return err
	}
	if stated == nil {
		log = "--hardware and vLLM's defaults"
	}
	con.infof("wrote %s from %s", name, log)
	return nil
}

// findStartLog returns the path of the first log in a folder that has the lines of a server's start, and what they
// state; "" and nil if there is none.
func findStartLog(dir string) (string, *deploy.Draft) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil
	}
	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".zst")
		isLog := strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".txt") || strings.Contains(name, "log")
		path := filepath.Join(dir, e.Name())
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || !isLog {
			continue // a link to a log is one
		}
		if stated, err := draftOfLog(path, nil, false); err == nil {
			return path, stated
		}
	}
	return "", nil
}
