package main

// This file is how commands write: results, messages, progress and JSON documents.

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// console is what a command writes to: data to out, messages to err. newCommand makes one for each
// call of a command.
//
// The long form prints all tables and warnings (with -v, and for commands without a short form).
// The short form (brief) prints no tables and sums warnings up.
type console struct {
	out, err io.Writer
	text     io.Writer // tables and lines for people: out, or err where a program reads out
	json     bool
	quiet    bool
	special  bool            // pipes and devices are read as if they were files
	log      *slog.Logger    // with --log-format json; nil: messages are text
	tty      bool            // err is a terminal
	width    int             // of err, in columns; 100 where it is no terminal
	outWidth int             // of text, in columns; 0 where it is no terminal
	brief    bool            // short form
	leftOut  string          // ID of a table that is not printed
	deferred []trace.Finding // warnings that deferWarnings keeps for flushWarnings
	changes  *result.Changes // since --baseline
	summary  bool            // stdout has the summary of --summary only

	session  *session
	groups   []group  // of pipeline.yaml that the command reads
	settings settings // what pipeline.yaml sets

	mu     sync.Mutex             // of what follows, and of printing
	warned map[trace.Finding]bool // warnings that were printed
	last   map[string]time.Time   // when progress of a stage was last printed
	open   bool                   // a progress line is on the screen
}

// outputFiles are flags with files that are written at the end of the work. newConsole checks before the work that
// they can be written and would replace nothing that they must not.
var outputFiles = []string{"ledger", "junit", "save-gram", "emit-otlp"}

// fullName returns the words of a command without the name of the program: "predictor fit".
func fullName(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ") }

// newConsole returns the console of a call: its streams, the flags of every command, and the width
// of the terminal.
func newConsole(c *cli.Context) (*console, error) {
	con := &console{
		out:     c.App.Writer,
		err:     c.App.ErrWriter,
		text:    c.App.Writer,
		json:    c.Bool("json"),
		quiet:   c.Bool("quiet"),
		special: c.Bool("allow-special"),
		width:   100,
		last:    map[string]time.Time{},
		warned:  map[trace.Finding]bool{},
		session: c.App.Metadata[sessionKey].(*session),
	}
	if w := columns(con.err); w > 0 {
		con.tty = true
		con.width = w
	}
	con.outWidth = columns(con.text)
	con.brief = c.Command != nil && slices.Contains(flagNames(c.Command.Flags), "verbose") && !c.Bool("verbose")
	for _, name := range append(outputFiles, "out") {
		path := c.String(name)
		if path == "" {
			continue
		}
		err := replacesInput(c, name, path)
		if err == nil && name != "out" { // which may be a folder
			err = files.CheckOutput(path, con.special && name == "junit")
		}
		if err != nil {
			return nil, err
		}
	}
	switch c.String("log-format") {
	case "", "text":
	case "json":
		con.log = slog.New(slog.NewJSONHandler(con.err, nil))
		con.session.log = con.log
	default:
		return nil, usagef("--log-format: got %q, want text or json", c.String("log-format"))
	}
	return con, nil
}

// replacesInput returns an error for an output file (path, of a flag) that would replace a file that the command reads, a
// document of another kind, or what a user wrote for this program, and for "-", which is a name here.
func replacesInput(c *cli.Context, flag, path string) error {
	if path == "-" {
		return usagef("--%s: got -, want the name of a file", flag)
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if st.IsDir() {
		return replacesQueue(c, flag, path)
	}
	inputs := c.Args().Slice()
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; name != flag {
			inputs = append(append(inputs, c.String(name)), c.StringSlice(name)...)
		}
	}
	if slices.ContainsFunc(inputs, func(in string) bool { return in != "" && files.Same(in, path) }) {
		return usagef("--%s: got %s, which the command uses otherwise, want another file", flag, path)
	}
	format := export.Format(c.String("format"))
	switch base := filepath.Base(path); {
	case flag == "out" && (c.Command.Name == "init" && base == runYAMLFile || base == folder.CoefficientsFile && format == export.FormatNative ||
		base == folder.BLISFile && format == export.FormatBLIS): // of the same kind
	case base == runYAMLFile, base == configName, folder.IsOwn(base):
		return &option.Misuse{Msg: fmt.Sprintf("--%s: got %s, which would be replaced by a file of another kind, want another name", flag, path),
			Hint: "remove it first if it is no longer needed"}
	}
	return nil
}

// replacesQueue returns an error for a folder of a queue command whose queue.json the command reads: it would be replaced by
// one that no longer says what it was made from.
func replacesQueue(c *cli.Context, flag, dir string) error {
	written := filepath.Join(dir, folder.QueueFile)
	isRead := func(in string) bool { return files.Same(in, written) }
	if strings.HasPrefix(fullName(c), "queue ") && slices.ContainsFunc(c.Args().Slice(), isRead) {
		return &option.Misuse{Msg: fmt.Sprintf("--%s: got %s, whose %s the command reads, want another folder", flag, dir, folder.QueueFile),
			Hint: "-o " + filepath.Join(dir, c.Command.Name)}
	}
	return nil
}

// columns returns the width in columns of the terminal that w writes to; 0 if it is no terminal.
func columns(w io.Writer) int {
	if o, ok := w.(*output); ok {
		w = o.raw
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return max(n, 24)
	}
	return 80
}

// infof prints one line of message on stderr, unless --quiet.
func (con *console) infof(format string, args ...any) {
	if con.quiet {
		return
	}
	con.message("info", fmt.Sprintf(format, args...))
}

// warn prints findings on stderr, each once. They are printed also with --quiet, because they
// change what a number means.
func (con *console) warn(findings []trace.Finding) {
	for _, f := range findings {
		con.mu.Lock()
		again := con.warned[f]
		con.warned[f] = true
		con.mu.Unlock()
		if again {
			continue
		}
		con.message("warning", fmt.Sprintf("%s: %s", f.Code, f.Message))
	}
}

// message prints one line on stderr in the format of --log-format. level is info or warning.
func (con *console) message(level, msg string) {
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	if con.log != nil {
		if level == "warning" {
			con.log.Warn(msg)
		} else {
			con.log.Info(msg)
		}
		return
	}
	if level == "warning" {
		msg = "warning: " + msg
	}
	fmt.Fprintln(con.err, files.Line(msg))
}

// document prints the JSON document when --json was given.
func (con *console) document(doc any) error {
	if !con.json {
		return nil
	}
	return result.Write(con.out, doc)
}

// progress returns a function that draws a bar with rate and remaining time on a terminal and
// prints a plain line every two seconds elsewhere; nil with --quiet.
func (con *console) progress() trace.Progress {
	if con.quiet {
		return nil
	}
	p := &stages{con: con, started: map[string]time.Time{}}
	return p.show
}

// stages are what one call of a command reports progress of.
type stages struct {
	con     *console
	started map[string]time.Time // by the name of the stage
}

// show prints how much of a stage is done, in the given unit. A total of 0 is unknown.
func (p *stages) show(stage string, done, total int64, unit string) {
	con := p.con
	con.mu.Lock()
	defer con.mu.Unlock()
	now := time.Now()
	if _, ok := p.started[stage]; !ok {
		p.started[stage] = now
	}
	// A bar is redrawn many times a second, a line is not repeated within two seconds. A bar is always
	// drawn at the end of its stage.
	every := 2 * time.Second
	if con.tty {
		every = 80 * time.Millisecond
	}
	last, seen := con.last[stage]
	isDone := done == total
	switch {
	case !con.tty && total > 0 && done >= total: // the messages that follow show that the stage has ended
		return
	case !con.tty && !seen: // a stage of less than two seconds gets no line
		con.last[stage] = now
		return
	case seen && now.Sub(last) < every && !(con.tty && isDone):
		return
	}
	con.last[stage] = now
	msg := progressText(stage, done, total, unit, now.Sub(p.started[stage]), con.tty)
	switch {
	case con.log != nil:
		con.log.Info("progress", "stage", stage, "done", done, "total", total, "unit", unit)
	case con.tty:
		if len(msg) > con.width-1 {
			msg = msg[:con.width-1]
		}
		con.moveCursor(clearLine)
		fmt.Fprint(con.err, files.Line(msg))
		con.open = true
		if isDone {
			con.clearBar()
		}
	default:
		fmt.Fprintln(con.err, msg)
	}
}

// clearBar removes the progress bar from the terminal, so that a line can be printed in its place.
func (con *console) clearBar() {
	if con.open {
		con.moveCursor(clearLine)
		con.open = false
	}
}

// clearLine is what moves the cursor to the start of a terminal's line and clears the line.
const clearLine = "\r\x1b[K"

// moveCursor writes a control sequence to the terminal.
func (con *console) moveCursor(s string) {
	if o, ok := con.err.(*output); ok {
		o.control(s)
	}
}

// progressText returns the text of a progress line: the share that is done, the amount, the rate
// per second and the time that is left. A total of 0 is unknown. bar adds a bar.
func progressText(stage string, done, total int64, unit string, elapsed time.Duration, bar bool) string {
	rate := float64(done) / max(elapsed.Seconds(), 1e-3)
	if total <= 0 {
		return fmt.Sprintf("%s: %s (%s/s)", stage, amount(float64(done), unit), amount(rate, unit))
	}
	frac := float64(done) / float64(total)
	s := fmt.Sprintf("%s: %3.0f %%", stage, 100*frac)
	if bar {
		const cells = 24
		full := min(cells, int(frac*cells))
		s += " [" + strings.Repeat("#", full) + strings.Repeat(".", cells-full) + "]"
	}
	eta := time.Duration(float64(total-done) / max(rate, 1e-9) * float64(time.Second)).Round(time.Second)
	return s + fmt.Sprintf(" %s of %s, %s/s, %s left", strings.TrimSuffix(amount(float64(done), unit), " "+unit), amount(float64(total), unit),
		amount(rate, unit), eta)
}

// amount returns a quantity with its unit; bytes ("B") in MB.
func amount(v float64, unit string) string {
	if unit == "B" {
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	if v > 0 && v < 10 && v != math.Trunc(v) {
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// output is a stream that remembers the first failed write, so that code that prints need not check
// every write and a full disk is still reported. After a failure it drops everything, so that a
// stage goes on and writes its files. Control characters are escaped, because names come from
// recordings.
type output struct {
	raw  io.Writer // the stream
	mu   sync.Mutex
	text files.Writer // writes to raw, with control characters escaped
	err  error        // of the first write that failed
	used bool         // something was written
}

// newOutput returns an output that writes to w.
func newOutput(w io.Writer) *output { return &output{raw: w, text: files.Writer{W: w}} }

// Write writes p with control characters escaped. It always returns len(p) and nil.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = true
	if o.err == nil {
		_, o.err = o.text.Write(p)
	}
	return len(p), nil
}

// control writes a control sequence that moves a terminal's cursor, without escaping.
func (o *output) control(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = io.WriteString(o.raw, s)
	}
}

// isUsed reports whether anything was written.
func (o *output) isUsed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used
}

// failure returns the first write error, also if the reader closed the pipe, as head does.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = o.text.Flush()
	}
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("standard output: %w", o.err)
}

// closedStream is a standard output that was closed before the program started.
type closedStream struct{}

// Write fails as a write to a closed file does.
func (closedStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
