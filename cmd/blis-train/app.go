// Command blis-train turns trace dumps of a running vLLM into versioned
// latency coefficients. Flags in, exit code out: 0 done, 1 failed, 2 usage,
// 3 ran fine but a gate failed, 130 interrupted. stdout is data, stderr is talk.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// Exit codes (spec#exit-status).
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitGate        = 3
	exitInterrupted = 130
)

// usagef is a mistake in how the command was called: exit 2.
func usagef(format string, args ...any) error { return option.Misusef(format, args...) }

// gatef is a verdict, not a failure of the tool: exit 3.
func gatef(format string, args ...any) error {
	return &pipeline.VerdictError{Msg: fmt.Sprintf(format, args...)}
}

// subcommands are the commands in the order and the groups help shows them; each lives in a file of its own.
// Where the first word of a call names one, that one alone is made.
func subcommands(word string) []*cli.Command {
	const predict, calibrate, more = "Predict and simulate", "Calibrate", "More"
	list := []struct {
		name, category string
		make           func(name string) *cli.Command
	}{
		{"predict", predict, newCommand(runPredict)},
		{"simulate", predict, newCommand(runSimulate, stageOptions)},
		{"run", calibrate, newCommand(runRun, stageOptions)},
		{"inspect", calibrate, newCommand(runInspect, stageOptions)},
		{"extract", calibrate, newCommand(runExtract, stageOptions)},
		{"fit", calibrate, newCommand(runFit, stageOptions)},
		{"validate", calibrate, newCommand(runValidate, stageOptions)},
		{"export", calibrate, newCommand(runExport, exportOptions)},
		{"predictor rows", more, newCommand(runPredictorRows, rowOptions)},
		{"predictor fit", more, newCommand(runPredictorFit, rowOptions, workOptions, trainOptions)},
		{"predictor evaluate", more, newCommand(runPredictorEvaluate, rowOptions, workOptions)},
		{"experiment isolation", more, newCommand(runIsolation, isolationOptions)},
		{"experiment optimise", more, newCommand(runOptimise, optimiseOptions)},
		{"check", more, newCommand(runCheck)},
		{"diff", more, newCommand(runDiff, diffOptions)},
		{"features", more, newCommand(runFeatures)},
		{"queue fit", more, newCommand(runQueueFit, queueFlags)},
		{"queue validate", more, newCommand(runQueueValidate, queueFlags)},
		{"queue size", more, newCommand(runQueueSize)},
		{"queue allocate", more, newCommand(runQueueAllocate)},
		{"plan", more, newCommand(runPlan, stageOptions, planOptions)},
		{"task", more, newCommand(runTasks)},
		{"collect", more, newCommand(runCollect, collectOptions)},
		{"library build", more, newCommand(buildLibrary, libraryOptions)},
		{"log", more, newCommand(runLog, logOptions)},
		{"init", more, newCommand(runInit)},
		{"explain", more, newCommand(runExplain)},
		{"completion", more, completionCommand},
	}
	known := strings.Contains(commandText, "== "+word+": ")
	var all []*cli.Command
	for _, c := range list {
		group, _, below := strings.Cut(c.name, " ")
		if known && word != group {
			continue
		}
		if below && (len(all) == 0 || all[len(all)-1].Name != group) {
			all = append(all, describe(&cli.Command{Category: c.category, Action: wantsSubcommand}, group))
		}
		if cmd := describe(c.make(c.name), c.name); below {
			all[len(all)-1].Subcommands = append(all[len(all)-1].Subcommands, cmd)
		} else {
			cmd.Category = c.category
			all = append(all, cmd)
		}
	}
	if known { // its own help needs no group
		all[0].Category = ""
	}
	return all
}

// firstHelp shows the commands most people need; help all shows every one.
var firstHelp = `blis-train - {{.Usage}}

Predict and simulate:{{range .VisibleCategories}}{{if eq .Name "Predict and simulate"}}{{range .VisibleCommands}}
   {{printf "%-10s" .Name}}{{.Usage}}{{end}}{{end}}{{end}}

Calibrate:{{range .VisibleCategories}}{{if eq .Name "Calibrate"}}{{range .VisibleCommands}}
   {{printf "%-10s" .Name}}{{.Usage}}{{end}}{{end}}{{end}}

More: blis-train help all     One command: blis-train COMMAND --help     A word it printed: blis-train explain WORD

Example:
   blis-train run testdata/traces/demo -o out
`

// run is the whole program: it returns the exit code and touches nothing but
// its arguments and the files they name.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := newOutput(stdout)
	talk := newOutput(stderr)
	held := &session{}
	defer held.release()
	interrupted := func() {
		files.Sweep()
		held.say(talk, "interrupted, temporary files removed", "")
	}
	ctx, stop := interruptible(interrupted)
	defer stop()
	word := ""
	if len(args) > 1 {
		word = args[1]
	}
	app := newApp(word, stdin, out, talk)
	if slices.Equal(args[1:], []string{"help", "all"}) {
		app.CustomAppHelpTemplate, args = "", args[:2]
	}
	app.Metadata = map[string]any{sessionKey: held}
	args = rearrange(app, args)
	for _, word := range args[1:min(3, len(args))] {
		if called := strings.TrimSpace(held.command + " " + word); strings.Contains(commandText, "== "+called+": ") {
			held.command = called
		}
	}
	err := attempt(ctx, app, args)
	if ctx.Err() != nil {
		interrupted()
		return exitInterrupted
	}
	files.Sweep()
	code := held.exitCode(talk, err)
	if lost := out.failure(); lost != nil {
		held.say(talk, lost.Error(), "")
		if code == exitOK || code == exitGate { // nobody read the verdict
			code = exitFailed
		}
	}
	if err != nil && wantsJSON(args) && !out.isUsed() {
		held.errorDocument(out, err, code)
	}
	return code
}

// wantsJSON reports whether the call asks for one JSON document, also where its
// flags could not be read.
func wantsJSON(args []string) bool {
	on, err := strconv.ParseBool(os.Getenv(environment("json")))
	return err == nil && on || slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// errorDoc is what --json prints when the command fails before it has a document.
type errorDoc struct {
	SchemaVersion string    `json:"schema_version"`
	Error         errorInfo `json:"error"`
}

type errorInfo struct {
	Code       string   `json:"code"` // of docs/codes.md; "" where there is none
	Messages   []string `json:"messages"`
	Hint       string   `json:"hint"`
	ExitStatus int      `json:"exit_status"`
}

func (s *session) errorDocument(out io.Writer, err error, exit int) {
	info := errorInfo{Messages: messages(err), Hint: hintOf(err, s.command), ExitStatus: exit}
	if placed, ok := errors.AsType[*trace.SyntaxError](err); ok {
		info.Code = string(placed.Code)
	} else if coded, ok := errors.AsType[*trace.Error](err); ok {
		info.Code = string(coded.Code)
	}
	if err := result.Write(out, errorDoc{result.SchemaVersion, info}); err != nil {
		s.say(out, err.Error(), "")
	}
}

// attempt runs the command; a panic comes back as an error.
func attempt(ctx context.Context, app *cli.App, args []string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(strings.Join(args[:min(2, len(args))], " "), v)
		}
	}()
	return app.RunContext(ctx, args)
}

// sessionKey is where commands find their session.
const sessionKey = "session"

func newApp(word string, stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:    "blis-train",
		Usage:   "latency coefficients you can trust, from vLLM traces",
		Version: versionText(),
		Description: "Reads OTLP trace dumps of a running vLLM, fits the physics of its step time and\noverheads, validates the " +
			"fit by replaying the traces, and writes versioned\ncoefficient files.\n\nExample:\n   blis-train run testdata/traces/demo -o out",
		Commands:              subcommands(word),
		Reader:                stdin,
		Writer:                stdout,
		ErrWriter:             stderr,
		Suggest:               true,
		CustomAppHelpTemplate: firstHelp,
		EnableBashCompletion:  true,
		// a value of --set may hold commas; lists are cut where they are read
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides the exit code
		OnUsageError:              onUsageError,
	}
	app.Action = func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return &option.Misuse{Msg: fmt.Sprintf("no command %q", name), Hint: suggestCommand(app, name)}
		}
		return cli.ShowAppHelp(c)
	}
	for _, cmd := range app.Commands {
		prepare(cmd)
		for _, sub := range cmd.Subcommands {
			prepare(sub)
		}
	}
	return app
}

// wantsSubcommand refuses a command that was called without one of its own.
func wantsSubcommand(c *cli.Context) error {
	names := stat.Map(c.Command.Subcommands, func(sub *cli.Command) string { return sub.Name })
	names = slices.DeleteFunc(names, func(name string) bool { return name == "help" })
	want := trace.OneOf(names)
	name := c.Args().First()
	if name == "" {
		return usagef("%s: got no command, want %s", c.Command.Name, want)
	}
	return usagef("%s: got %q, want %s", c.Command.Name, name, want)
}

// prepare gives a command our words for wrong flags, and the environment.
func prepare(cmd *cli.Command) {
	cmd.OnUsageError = onUsageError
	for _, f := range cmd.Flags {
		name := f.Names()[0]
		if !slices.Contains(environmentFlags, name) || name == "config" && cmd.Name == "export" { // there it names a configuration
			continue
		}
		reflect.ValueOf(f).Elem().FieldByName("EnvVars").Set(reflect.ValueOf([]string{environment(name)})) // every kind of flag has it
	}
}

// environmentFlags are the flags that the environment may set, as CI does; the
// command line goes before it, and pipeline.yaml behind.
var environmentFlags = []string{"json", "quiet", "log-format", "workers", "config", "ledger", "max-bad-frac", "bootstraps", "for"}

// environment is the variable of a flag.
func environment(flag string) string {
	return "BLIS_TRAIN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// onUsageError turns the flag package's message into ours, with the nearest flag as hint.
func onUsageError(c *cli.Context, err error, _ bool) error {
	usage := &option.Misuse{Msg: err.Error()}
	if c.Command != nil && c.Command.HelpName != "" {
		usage.Hint = fmt.Sprintf("see %s --help", c.Command.HelpName)
	}
	if rest, ok := strings.CutPrefix(usage.Msg, "flag provided but not defined: -"); ok {
		name := strings.TrimLeft(rest, "-")
		usage.Msg = fmt.Sprintf("unknown flag %q", dashed(name))
		known := flagNames(c.Command.Flags)
		for _, s := range keysOf(c.Command.Name) {
			known = append(known, s.table.Names()...)
		}
		near := files.Nearest(name, slices.Concat(known, slices.Sorted(maps.Keys(soughtFlags))))
		path := deploy.ServePath(name)
		switch key, now := keyHint(c.Command.Name, near), soughtFlags[near]; {
		case path != "" && slices.Contains(known, "vllm"):
			usage.Hint = fmt.Sprintf("give it inside --vllm \"%s ...\"", dashed(name))
		case path != "" && slices.Contains(known, "set"):
			usage.Hint = fmt.Sprintf("--set %s=VALUE says what run.yaml does not", path)
		case key != "":
			usage.Hint = key
		case now != "" && near == name:
			usage.Hint = now
		case near != "":
			usage.Hint = strings.TrimSpace(fmt.Sprintf("did you mean --%s? %s", near, now))
		case c.Command.Name == "init":
			usage.Hint = "quote the server's command: --from-cmdline 'vllm serve ...'"
		}
	}
	if name, ok := strings.CutPrefix(usage.Msg, "flag needs an argument: -"); ok {
		usage.Msg = fmt.Sprintf("%s: got nothing, want a value", dashed(strings.TrimLeft(name, "-")))
	}
	if m := badFlagValue.FindStringSubmatch(usage.Msg); m != nil {
		usage.Msg = fmt.Sprintf("%s: got %s, want %s", dashed(m[2]), m[1], wanted(c.Command.Flags, m[2]))
		plain := strings.NewReplacer(`"`, "", ",", "", "_", "", "k", "000", "K", "000").Replace(m[1])
		if _, err := strconv.Atoi(plain); err == nil && strings.HasSuffix(usage.Msg, "number") {
			usage.Hint = "did you mean " + plain + "?"
		}
	}
	if m := badEnvironment.FindStringSubmatch(usage.Msg); m != nil {
		usage.Msg = fmt.Sprintf("%s: got %s, want %s", m[2], m[1], wanted(c.Command.Flags, m[3]))
	}
	return usage
}

// badEnvironment is the library's complaint about a variable.
var badEnvironment = regexp.MustCompile(`^could not parse ("(?:[^"\\]|\\.)*") as \w+ value from environment variable "(\w+)" for flag ([a-z-]+): `)

// badFlagValue is the flag package's complaint about a value.
var badFlagValue = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-+([a-z-]+): `)

// dashed is a flag as the user writes it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// wanted says what values the named flag takes.
func wanted(flags []cli.Flag, name string) string {
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.Int64Flag:
			return "a whole number"
		case *cli.Float64Flag:
			return "a number"
		case *cli.BoolFlag:
			return "true or false"
		case *cli.DurationFlag:
			return "a time with its unit, as in 60s"
		}
	}
	return "another value"
}

// soughtFlags are flags that people look for, and what does their work. Keys are not among them: keyHint finds these.
var soughtFlags = map[string]string{
	"gamma":    "fit chooses it by cross-validation; it is printed with -v and stands in fit.json",
	"hardware": "it stands in run.yaml; --set hardware.name=H100 overrides it where a command has --set",
	"lambda":   "fit chooses it by cross-validation; it is printed with -v and stands in fit.json",
	"output":   "-o names the output",
}

func suggestCommand(app *cli.App, name string) string {
	names := stat.Map(app.Commands, func(c *cli.Command) string { return c.Name })
	return cmp.Or(meant(name, names), "see blis-train --help")
}

// meant is the hint at the word that is likely meant; "" where none is near.
func meant(word string, legal []string) string {
	if near := files.Nearest(word, legal); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// exitCode prints err as "error: …" and at most one "hint: …" and picks the exit code.
func (s *session) exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.As(err, new(cli.ExitCoder)) { // the library's help command found no topic
		msg, near, _ := strings.Cut(strings.ToLower(err.Error()[:1])+err.Error()[1:], ". Did you mean ")
		hint := "see blis-train help all"
		if near != "" {
			hint = "did you mean " + near + " " + hint
		}
		err = &option.Misuse{Msg: msg, Hint: hint}
	}
	// prints the errors joined in err, and the hint after the last
	all := messages(err)
	for _, msg := range all[:len(all)-1] {
		s.say(stderr, msg, "")
	}
	s.say(stderr, all[len(all)-1], hintOf(err, s.command))
	coded := (*trace.Error)(nil)
	switch {
	case errors.As(err, new(*option.Misuse)):
		return exitUsage
	case errors.As(err, new(*pipeline.VerdictError)), errors.As(err, &coded) && coded.Code == export.PoorProjection:
		return exitGate
	case coded != nil && isUsage(coded.Code):
		return exitUsage
	}
	return exitFailed
}

// messages are the errors joined in err, one each.
func messages(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = stat.AppendNew(all, messages(e)...) // a write that fails, and its close
	}
	return all
}

// say prints an error in the log's format.
func (s *session) say(stderr io.Writer, msg, hint string) {
	if s.log != nil {
		s.log.Error(msg, slog.String("hint", hint))
		return
	}
	fmt.Fprintf(stderr, "error: %s\n", files.Line(msg))
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", files.Line(hint))
	}
}

// inPercent is a message about a share that was given in percent.
var inPercent = regexp.MustCompile(`got (\d\d?), want (?:a share|0\.\.1)`)

// choice is a message that lists what was possible.
var choice = regexp.MustCompile(`got "([^"]+)", (?:.* )?want ([^;]+)$`)

// hintOf is the hint that the terminal shows with an error of a command: its own, else the name that was
// probably meant, else where the keys or flags are explained.
func hintOf(err error, command string) string {
	misuse := (*option.Misuse)(nil)
	missing := (*fs.PathError)(nil)
	at := (*trace.SyntaxError)(nil)
	wrong := errors.As(err, &misuse)
	if errors.As(err, new(*bug)) {
		return reportHint
	}
	if wrong && misuse.Hint != "" {
		return misuse.Hint
	}
	if hint := trace.HintOf(err); hint != "" {
		return hint
	}
	if m := choice.FindStringSubmatch(err.Error()); m != nil {
		words := strings.FieldsFunc(strings.ReplaceAll(m[2], " or ", ", "), func(r rune) bool { return strings.ContainsRune(`, "`, r) })
		if hint := meant(m[1], words); hint != "" {
			return hint
		}
	}
	if m := inPercent.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Sprintf("%s %% is 0.%s", m[1], ("0" + m[1])[len(m[1])-1:])
	}
	switch {
	case errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist):
		return absentHint(missing.Path)
	case strings.Contains(err.Error(), "no space left on device"):
		return "free some space, or write elsewhere: df -h shows what is left"
	case errors.As(err, &missing) && errors.Is(err, fs.ErrPermission):
		return "choose another place: ls -ld " + filepath.Dir(missing.Path) + " shows who may write or read here"
	case errors.As(err, &at) && strings.HasPrefix(at.Msg, "unknown key ") && kindOfFile(at.File) != "":
		return fmt.Sprintf("%s looks like %s: was another file meant?", at.File, kindOfFile(at.File))
	case errors.As(err, &at) && filepath.Base(at.File) == deploy.RunFile:
		return "docs/run-yaml.md lists every key with its type"
	case wrong && command != "":
		return fmt.Sprintf("see blis-train %s --help", command)
	case trace.CodeOf(err) != "":
		return fmt.Sprintf("blis-train explain %s", trace.CodeOf(err))
	}
	return ""
}

// absentHint says what may be meant by the path of nothing.
func absentHint(path string) string {
	folder, name := filepath.Split(path)
	entries, gone := os.ReadDir(cmp.Or(folder, "."))
	if near := files.Nearest(name, stat.Map(entries, os.DirEntry.Name)); near != "" {
		return fmt.Sprintf("did you mean %s?", folder+near)
	} else if gone != nil {
		return "there is no folder " + folder + "; one for output is made with mkdir -p"
	}
	return "there is no such file: list the folder with ls " + cmp.Or(folder, ".")
}

// kindOfFile says what a file is that was given in the place of another; "" where it does not show.
func kindOfFile(name string) string {
	text, _ := files.ReadAll(name)
	for _, kind := range [][2]string{{"physics_coefficients:", "a coefficient file"}, {`"model_type"`, "a model's config.json"},
		{"\nvllm:", "a run.yaml"}, {"\narrivals:", "a workload"}, {`"schema_version"`, "a document that blis-train wrote"}} {
		if strings.Contains(string(text), kind[0]) {
			return kind[1]
		}
	}
	return ""
}

//go:generate go test -run TestPagesAreGenerated . -update
//go:generate go test -run TestCodesPageIsCurrent . -update-codes

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// What happens at the edge of every command: signals and our own mistakes.

// patience is how long a command has to end by itself once it was interrupted.
const patience = time.Second

// interruptible ends the context at the first interrupt, and the process at the second or
// when its patience is at an end. stop gives the signals back.
func interruptible(last func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	ignoreBrokenPipes()
	go func() {
		select {
		case <-done:
			return
		case <-got:
			cancel()
		}
		select {
		case <-done:
			return
		case <-got:
		case <-time.After(patience):
		}
		time.AfterFunc(patience/4, func() { os.Exit(exitInterrupted) }) // nobody may read what last says
		last()
		os.Exit(exitInterrupted)
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}

// bug is a panic of ours, as an error.
type bug struct {
	command string
	value   any
	stack   []byte
}

// recovered turns the value of a panic into a bug.
func recovered(command string, value any) *bug {
	if p, nested := value.(*par.Panic); nested {
		return &bug{command, p.Value, p.Stack}
	}
	return &bug{command, value, debug.Stack()}
}

func (b *bug) Error() string {
	return fmt.Sprintf("%s: this is our mistake, not yours: %v, in %s", b.command, b.value, strings.Join(b.where(), " < "))
}

const reportHint = "please report it at https://github.com/blis-train/blis-train/issues with this line, `blis-train --version`, " +
	"the command and, if you may, the input that causes it"

// ownFrame is a function of this module in a stack, and the line below it.
var ownFrame = regexp.MustCompile(`(?m)^github\.com/blis-train/blis-train/(\S+)\([^\n]*\)\n\s+\S*/([^/\s]+:\d+)`)

// where are the innermost functions of ours, without the machinery around them.
func (b *bug) where() []string {
	stack := string(b.stack)
	if _, below, found := strings.Cut(stack, "\npanic("); found {
		stack = below
	}
	var frames []string
	for _, m := range ownFrame.FindAllStringSubmatch(stack, -1) {
		if !strings.HasPrefix(m[1], "internal/par.") && len(frames) < 3 {
			frames = append(frames, m[1]+" ("+m[2]+")")
		}
	}
	if len(frames) == 0 {
		return []string{"a place unknown"}
	}
	return frames
}

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
