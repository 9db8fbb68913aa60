package main

// This file prints errors with hints, and decides the exit code.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
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

// usagef returns an error for a command that was called wrongly: exit status 2.
func usagef(format string, args ...any) error { return option.Misusef(format, args...) }

// gatef returns an error for a verdict, which is not a failure of the program: exit status 3.
func gatef(format string, args ...any) error {
	return &pipeline.VerdictError{Msg: fmt.Sprintf(format, args...)}
}

// errorDoc is what --json prints when the command fails before it has a document.
type errorDoc struct {
	SchemaVersion string    `json:"schema_version"`
	Error         errorInfo `json:"error"`
}

// errorInfo is the error in an errorDoc.
type errorInfo struct {
	Code       string   `json:"code"` // of docs/codes.md; "" where there is none
	Messages   []string `json:"messages"`
	Hint       string   `json:"hint"`
	ExitStatus int      `json:"exit_status"`
}

// errorDocument prints the error as a JSON document.
func (s *session) errorDocument(out io.Writer, err error, exit int) {
	info := errorInfo{Messages: errorMessages(err), Hint: hintOf(err, s.command), ExitStatus: exit}
	if placed, ok := errors.AsType[*trace.SyntaxError](err); ok {
		info.Code = string(placed.Code)
	} else if coded, ok := errors.AsType[*trace.Error](err); ok {
		info.Code = string(coded.Code)
	}
	if err := result.Write(out, errorDoc{result.SchemaVersion, info}); err != nil {
		s.printError(out, err.Error(), "")
	}
}

// exitCode prints err as "error: …" and at most one "hint: …", and returns the exit status.
func (s *session) exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.As(err, new(cli.ExitCoder)) {
		// The library's help command found no topic: "No help topic for 'x'", with a guess of its own behind it.
		msg, _, _ := strings.Cut(strings.ToLower(err.Error()[:1])+err.Error()[1:], ". Did you mean ")
		name := strings.Trim(msg[strings.LastIndexByte(msg, ' ')+1:], "'")
		err = &option.Misuse{Msg: msg, Hint: suggestCommand(name)}
	}
	all := errorMessages(err)
	for _, msg := range all[:len(all)-1] {
		s.printError(stderr, msg, "")
	}
	s.printError(stderr, all[len(all)-1], hintOf(err, s.command))
	// The kind of the error decides the status: wrong use, a verdict or gate, or another failure.
	var coded *trace.Error
	switch {
	case errors.As(err, new(*option.Misuse)):
		return exitUsage
	case errors.As(err, new(*pipeline.VerdictError)), errors.As(err, &coded) && coded.Code == export.PoorProjection:
		return exitGate
	case coded != nil && isUsage(coded.Code), isSetting(err), s.isWrongName(err):
		return exitUsage
	}
	return exitFailed
}

// isSetting reports whether an error is of a value that came from flags and not from a file.
func isSetting(err error) bool {
	at, ok := errors.AsType[*trace.SyntaxError](err)
	return ok && at.File == deploy.SettingsName
}

// isWrongName reports whether an error is about a word of the command line that names no file and no
// model, or a flag within --vllm that there is none of.
func (s *session) isWrongName(err error) bool {
	code := trace.CodeOf(err)
	if code == deploy.UnknownFlag {
		return true
	}
	if !errors.Is(err, fs.ErrNotExist) && code != model.MissingConfig && code != extract.CodeNoRuns &&
		!strings.Contains(err.Error(), "no such file") {
		return false
	}
	// The error is about a name if it contains a word of the command line that is no number, no flag, no
	// command and no file.
	for _, word := range s.args {
		if _, value, isFlag := strings.Cut(word, "="); isFlag && strings.HasPrefix(word, "-") {
			word = value
		}
		_, notNumber := strconv.ParseFloat(word, 64)
		isName := notNumber != nil && word != "" && !strings.HasPrefix(word, "-") &&
			!slices.Contains(strings.Fields(s.command), word)
		if !isName || !strings.Contains(err.Error(), word) {
			continue
		}
		if _, gone := os.Stat(word); errors.Is(gone, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// errorMessages returns the message of each error that is joined in err.
func errorMessages(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range joined.Unwrap() {
		for _, msg := range errorMessages(e) {
			if !slices.Contains(all, msg) { // a write and the close after it fail alike
				all = append(all, msg)
			}
		}
	}
	return all
}

// printError prints an error and its hint in the format of --log-format.
func (s *session) printError(stderr io.Writer, msg, hint string) {
	if s.log != nil {
		s.log.Error(msg, slog.String("hint", hint))
		return
	}
	fmt.Fprintf(stderr, "error: %s\n", files.Line(msg))
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", files.Line(hint))
	}
}

// percentGiven matches the message about a share that was given in percent, such as 95 for 0.95.
var percentGiven = regexp.MustCompile(`got (\d\d?), want (?:a share|0\.\.1)`)

// choiceError matches a message that lists the words that an option can have.
var choiceError = regexp.MustCompile(`got "([^"]+)", (?:.* )?want ([^;]+)$`)

// spellingHint returns a hint about a value that is right but for its spelling, such as a number in quotes in YAML;
// "" for another. wanted is what the message says of the value.
func spellingHint(got, wanted string) string {
	_, err := strconv.ParseInt(got, 10, 64)
	isInt := err == nil
	isSwitch := strings.HasPrefix(wanted, "true or false")
	switch {
	case isSwitch && (got == "true" || got == "false"),
		isInt && strings.HasPrefix(wanted, "an integer"),
		isNumber(got) && strings.HasPrefix(wanted, "a number in "):
		return "quotes make it a text: write " + got
	case isSwitch && slices.Contains([]string{"yes", "on", "y", "1"}, strings.ToLower(got)):
		return "write true"
	case isSwitch && slices.Contains([]string{"no", "off", "n", "0"}, strings.ToLower(got)):
		return "write false"
	}
	return ""
}

// isNumber reports whether a text is a number.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// hintOf returns the hint printed with an error of a command: the error's own, else the word that
// was probably meant, else where the keys, flags or codes are explained; "" if there is none.
func hintOf(err error, command string) string {
	var (
		misuse  *option.Misuse
		missing *fs.PathError
		at      *trace.SyntaxError
	)
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
	// A message that lists the allowed words, or got a percentage for a share.
	m := choiceError.FindStringSubmatch(err.Error())
	if m != nil {
		if hint := spellingHint(m[1], m[2]); hint != "" {
			return hint
		}
	}
	if m != nil && !isNumber(m[1]) { // a bound near a wrong number is no spelling of it
		words := strings.FieldsFunc(strings.ReplaceAll(m[2], " or ", ", "), func(r rune) bool {
			return strings.ContainsRune(`, "`, r)
		})
		if hint := didYouMean(m[1], words); hint != "" {
			return hint
		}
	}
	if m := percentGiven.FindStringSubmatch(err.Error()); m != nil && m[1] != "0" { // 5 is 0.05, 95 is 0.95
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

// absentHint returns the hint for a path without a file: the name that was probably meant, or how
// to look for it.
func absentHint(path string) string {
	if to, err := os.Readlink(path); err == nil {
		return fmt.Sprintf("%s is a link to %s, which does not exist", path, to)
	}
	folder, name := filepath.Split(path)
	entries, gone := os.ReadDir(cmp.Or(folder, "."))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if near := files.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %s?", folder+near)
	}
	if gone != nil && slices.Contains([]string{"coefficients.yaml", "fit.json", "validation.json"}, name) {
		return "blis-train run RUNDIR -o " + filepath.Clean(folder) + " writes it"
	}
	if gone != nil {
		return "there is no folder " + folder + "; one for output is made with mkdir -p"
	}
	return "there is no such file: list the folder with ls " + cmp.Or(folder, ".")
}

// kindOfFile returns what a file is ("a run.yaml"), recognised by its content, for a file that was
// given in the place of another; "" if it cannot be recognised.
func kindOfFile(name string) string {
	text, _ := files.Read(name, files.MaxYAML, false)
	for _, kind := range []struct{ mark, name string }{
		{"physics_coefficients:", "a coefficient file"},
		{`"schema_version"`, "a document that blis-train wrote"}, // which may have a model's config.json in it
		{`"model_type"`, "a model's config.json"},
		{"\nvllm:", "a run.yaml"},
		{"\narrivals:", "a workload"},
	} {
		if strings.Contains(string(text), kind.mark) {
			return kind.name
		}
	}
	return ""
}
