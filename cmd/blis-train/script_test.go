package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/blis-train/blis-train/internal/repo"
)

var updateScripts = flag.Bool("update", false, "rewrite what scripts compare with")

func TestMain(m *testing.M) {
	// How much memory a command takes is measured by evaluations alone; the other tests need not collect it so often.
	if !repo.Eval() && os.Getenv("GOGC") == "" {
		os.Setenv("GOGC", "400") // of the processes that tests start, and read by package par
		debug.SetGCPercent(400)
	}
	testscript.Main(m, map[string]func(){"blis-train": main})
}

// Each testdata/script/*.txtar is one behaviour of the command line; the first
// word of its name is the subcommand. $TRACES is the folder of bundled traces,
// $EXAMPLE a coefficient file, $KERNELS a folder with kernel tables. Scripts that are
// not about extraction begin with extracted FOLDER: what extract makes of the bundled
// real runs, made once for all of them. The command call runs one of blis-train in this process, and
// tasks FOLDER the tasks of a plan.
// The command demo lays down what the README's first command leaves and prints, which runs once in
// a test binary; the command swept FLAVOUR FOLDER does so with what queue fit makes of a bundled sweep. At a script's end the documents that its commands wrote are compared with their schemas.
//
// Lines that begin with [eval] take seconds for a behaviour of which the suite sees less elsewhere: they run
// in TestEvalScripts.
func TestScripts(t *testing.T) {
	runScripts(t)
}

// TestEvalScripts runs the scripts with their slow lines.
func TestEvalScripts(t *testing.T) {
	repo.NeedEval(t)
	runScripts(t)
}

func runScripts(t *testing.T) {
	t.Helper()
	traces, err := filepath.Abs("../../testdata/traces")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Abs("testdata/script")
	if err != nil {
		t.Fatal(err)
	}
	tables := t.TempDir()
	if code, _, stderr := call("extract", filepath.Join(traces, "real"), "-o", tables, "--quiet"); code != exitOK {
		t.Fatal(stderr)
	}
	schemas := compiledSchemas(t)
	testscript.Run(t, testscript.Params{
		Dir:           scripts, // absolute: call changes the working folder
		UpdateScripts: *updateScripts,
		Condition: func(condition string) (bool, error) {
			if condition != "eval" {
				return false, fmt.Errorf("got condition %q, want eval", condition)
			}
			return repo.Eval(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fits":  fits,
			"call":  callInScript,
			"tasks": tasksInScript,
			"demo": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 0 {
					ts.Fatalf("usage: demo")
				}
				if demo.files == nil { // the script runs alone
					ts.Check(ts.Exec("blis-train", "run", filepath.Join(traces, "demo"), "-o", "out"))
					return
				}
				writeDemo(t, ts.MkAbs("."))
				ts.Stdout().Write(demo.stdout)
				ts.Stderr().Write(demo.stderr)
				if demo.status != exitOK {
					ts.Fatalf("the demo ends with %d", demo.status)
				}
			},
			"swept": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: swept FLAVOUR FOLDER")
				}
				workingFolder.Lock()
				defer workingFolder.Unlock()
				fit := sweepFit(t, args[0])
				for name, data := range fit.files {
					repo.Write(t, data, ts.MkAbs(args[1]), name)
				}
				io.WriteString(ts.Stdout(), fit.stdout)
				io.WriteString(ts.Stderr(), fit.stderr)
				if neg != (fit.status != exitOK) {
					ts.Fatalf("queue fit ends with %d", fit.status)
				}
			},
			"extracted": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: extracted FOLDER")
				}
				ts.Check(os.CopyFS(ts.MkAbs(args[0]), os.DirFS(tables)))
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("TRACES", traces)
			env.Setenv("EXAMPLE", filepath.Join(traces, "../../coeff/testdata/example/coefficients.yaml"))
			env.Setenv("UPSTREAM", filepath.Join(traces, "../upstream"))
			env.Setenv("KERNELS", filepath.Join(traces, "../../library/build/testdata"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, ".tmp"))
			env.Defer(func() {
				if faults := faultsOfDocuments(schemas, env.WorkDir); len(faults) > 0 {
					env.T().Fatal(strings.Join(faults, "\n"))
				}
			})
			return os.MkdirAll(filepath.Join(env.WorkDir, ".tmp"), 0o755)
		},
	})
}

// callInScript runs a command of blis-train in this process, in the script's folder and with its
// environment: a process of its own would take longer to start than most of these commands run. Scripts
// write exec blis-train where they need one: for a standard input, for completion, which reads os.Args,
// and for variables of the environment other than these three.
func callInScript(ts *testscript.TestScript, neg bool, args []string) {
	checkStatus(ts, neg, runInScript(ts, args, ts.Stdout(), ts.Stderr()))
}

// tasksInScript does the tasks of the plan in a folder, as callInScript does each, until collect names no more. It ends
// as the last collect does.
func tasksInScript(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: tasks FOLDER")
	}
	for {
		var open strings.Builder
		status := runInScript(ts, []string{"collect", args[0], "--quiet"}, &open, ts.Stderr())
		if status != exitOK || open.String() == "" {
			checkStatus(ts, neg, status)
			return
		}
		for _, id := range strings.Fields(open.String()) {
			checkStatus(ts, false, runInScript(ts, []string{"task", args[0], id, "--quiet"}, ts.Stdout(), ts.Stderr()))
		}
	}
}

// checkStatus ends the script where a command ends otherwise than it says.
func checkStatus(ts *testscript.TestScript, neg bool, status int) {
	switch {
	case neg && status == exitOK:
		ts.Fatalf("unexpected command success")
	case !neg && status != exitOK:
		ts.Fatalf("unexpected exit status %d", status)
	}
}

// runInScript runs a command of blis-train in this process, in the script's folder and with its environment, and
// returns its exit status.
func runInScript(ts *testscript.TestScript, args []string, stdout, stderr io.Writer) int {
	workingFolder.Lock()
	defer workingFolder.Unlock()
	folder, err := os.Getwd()
	ts.Check(err)
	defer func() { ts.Check(os.Chdir(folder)) }()
	ts.Check(os.Chdir(ts.MkAbs(".")))
	for _, name := range []string{"HOME", "TMPDIR", "HF_HOME"} {
		before, isSet := os.LookupEnv(name)
		if now := ts.Getenv(name); now != "" {
			ts.Check(os.Setenv(name, now))
		} else {
			ts.Check(os.Unsetenv(name))
		}
		defer func() {
			if isSet {
				ts.Check(os.Setenv(name, before))
			} else {
				ts.Check(os.Unsetenv(name))
			}
		}()
	}
	return run(append([]string{"blis-train"}, args...), strings.NewReader(""), stdout, stderr)
}

// workingFolder is locked while a command of a script runs in this process, which has one working
// folder and one environment.
var workingFolder sync.Mutex

// fits LINES COLUMNS fails when what the last command printed, both streams
// together, needs more.
func fits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fits LINES COLUMNS")
	}
	lines, err := strconv.Atoi(args[0])
	ts.Check(err)
	columns, err := strconv.Atoi(args[1])
	ts.Check(err)
	printed := strings.Split(strings.TrimSuffix(ts.ReadFile("stdout")+ts.ReadFile("stderr"), "\n"), "\n")
	if len(printed) > lines {
		ts.Fatalf("got %d lines, want at most %d", len(printed), lines)
	}
	for _, l := range printed {
		if n := utf8.RuneCountInString(l); n > columns {
			ts.Fatalf("got %d columns, want at most %d: %s", n, columns, l)
		}
	}
}
