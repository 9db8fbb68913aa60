package report

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// browser drives a headless Chromium over its debugging pipe: messages are
// JSON ended by a zero byte, written to its descriptor 3 and read from 4.
type browser struct {
	t       *testing.T
	in      io.Writer
	replies chan message
	next    int
	session string
	events  []message
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// patience is how long a silent browser is waited for.
const patience = 60 * time.Second

func startBrowser(t *testing.T) *browser {
	t.Helper()
	var bin string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			bin = p
			break
		}
	}
	if bin == "" {
		t.Skip("no chromium on PATH: the report was not opened in a browser")
	}
	profile, err := os.MkdirTemp("", "report-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--user-data-dir="+profile,
		"about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW}
	if err := cmd.Start(); err != nil {
		t.Skipf("chromium does not start (%v): the report was not opened in a browser", err)
	}
	_ = toR.Close()
	_ = fromW.Close()
	b := &browser{t: t, in: toW, replies: make(chan message, 4096)}
	go b.read(fromR)
	t.Cleanup(func() {
		_, _ = toW.Write([]byte(`{"id":1000000,"method":"Browser.close"}` + "\x00"))
		_ = toW.Close()
		end := time.AfterFunc(3*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		end.Stop()
		_ = os.RemoveAll(profile)
	})
	return b
}

func (b *browser) read(r io.Reader) {
	defer close(b.replies)
	buf := bufio.NewReaderSize(r, 1<<20)
	for {
		raw, err := buf.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimRight(raw, "\x00"), &m) == nil {
			b.replies <- m
		}
	}
}

// call sends a command and returns its result; events on the way are kept.
func (b *browser) call(method string, params any, into any) {
	b.t.Helper()
	b.next++
	raw, err := json.Marshal(params)
	if err != nil {
		b.t.Fatal(err)
	}
	msg, err := json.Marshal(message{ID: b.next, Method: method, Params: raw, SessionID: b.session})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(msg, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for m := b.receive(method); ; m = b.receive(method) {
		if m.ID != b.next {
			b.events = append(b.events, m)
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(m.Result, into); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

func (b *browser) receive(waiting string) message {
	b.t.Helper()
	select {
	case m, ok := <-b.replies:
		if !ok {
			b.t.Fatalf("chromium went away during %s", waiting)
		}
		return m
	case <-time.After(patience):
		b.t.Fatalf("chromium is silent during %s", waiting)
	}
	return message{}
}

type anyMap = map[string]any

// open attaches to a fresh page with the given width and colour scheme and
// loads the file.
func (b *browser) open(file string, width, height int, scheme string) {
	b.t.Helper()
	b.session, b.events = "", nil
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("Target.createTarget", anyMap{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", anyMap{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", anyMap{}, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", anyMap{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", anyMap{"features": []anyMap{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", anyMap{"url": "file://" + file}, nil)
	for !b.seen("Page.loadEventFired") {
		b.events = append(b.events, b.receive("load"))
	}
}

func (b *browser) seen(method string) bool {
	for _, m := range b.events {
		if m.Method == method && m.SessionID == b.session {
			return true
		}
	}
	return false
}

// eval runs an expression in the page and decodes its JSON value.
func (b *browser) eval(expr string, into any) {
	b.t.Helper()
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", anyMap{"expression": expr, "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expr, out.ExceptionDetails.Text)
	}
	if into != nil {
		if err := json.Unmarshal(out.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %v (%s)", expr, err, out.Result.Value)
		}
	}
}

func (b *browser) truth(expr, claim string) {
	b.t.Helper()
	var ok bool
	b.eval("!!("+expr+")", &ok)
	if !ok {
		b.t.Errorf("%s: %s is false", claim, expr)
	}
}

// screenshot stores what the window shows, or the whole page when the pictures are kept.
func (b *browser) screenshot(file string) {
	b.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", anyMap{"format": "png", "captureBeyondViewport": os.Getenv("BLIS_TRAIN_SHOTS") != ""}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.DecodeConfig(bytes.NewReader(raw))
	if err != nil || img.Width < 300 || img.Height < 300 {
		b.t.Fatalf("%s: %v, %d x %d", file, err, img.Width, img.Height)
	}
	repo.Write(b.t, raw, file)
	b.t.Logf("screenshot %s: %d x %d, %d bytes", file, img.Width, img.Height, len(raw))
}

// quiet fails on console messages, exceptions, policy violations and any
// request but the one for the page itself.
func (b *browser) quiet() {
	b.t.Helper()
	for _, m := range b.events {
		if m.SessionID != b.session {
			continue
		}
		switch m.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening":
			b.t.Errorf("%s: %s", m.Method, m.Params)
		case "Network.requestWillBeSent":
			var p struct {
				Request struct{ URL string }
				Type    string
			}
			if err := json.Unmarshal(m.Params, &p); err != nil {
				b.t.Fatal(err)
			}
			if p.Type != "Document" && !strings.HasPrefix(p.Request.URL, "data:") {
				b.t.Errorf("the page asked for %s %s", p.Type, p.Request.URL)
			}
		}
	}
}

// TestChromium is what a browser makes of the page, one browser for all.
func TestChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the report was not opened in a browser")
	}
	b := startBrowser(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *browser)
	}{{"views", showViews}, {"buttons", pressButtons}, {"hostile", openHostile}, {"print", printPage}} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			c.test(t, b)
		})
	}
}

// showViews opens the report in both colour schemes
// and at the width of a phone: no console message, no request, no sideways
// scrolling, working buttons. BLIS_TRAIN_SHOTS=DIR keeps the screenshots, of the
// whole page;
// BLIS_TRAIN_OUT=DIR opens the report of that run folder
// instead of a made-up one.
func showViews(t *testing.T, b *browser) {
	dir, file := writtenReport(t)
	for _, view := range []struct {
		name, scheme  string
		width, height int
	}{{"light", "light", 1280, 900}, {"phone-dark", "dark", 390, 844}, {"dark", "dark", 1280, 900}, {"phone-light", "light", 390, 844}} {
		if view.name == "dark" && !repo.Eval() && os.Getenv("BLIS_TRAIN_SHOTS") == "" {
			break // each width and each scheme was seen
		}
		b.open(file, view.width, view.height, view.scheme)
		b.truth("document.querySelectorAll('section').length >= 8", view.name)
		b.truth(fmt.Sprintf("document.documentElement.scrollWidth <= %d", view.width), view.name+" has no sideways scrolling")
		b.truth(fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", view.scheme), view.name)
		var ground string
		b.eval("getComputedStyle(document.body).backgroundColor", &ground)
		if dark := ground != "rgb(255, 255, 255)"; dark != (view.scheme == "dark") {
			t.Errorf("%s: the page's ground is %s", view.name, ground)
		}
		b.screenshot(filepath.Join(dir, view.name+".png"))
		b.quiet()
	}
}

// pressButtons: sorting and the colour switch work, also by keyboard.
func pressButtons(t *testing.T, b *browser) {
	file := filepath.Join(t.TempDir(), "report.html")
	repo.Write(t, render(t, made(small, plainRun)), file)
	b.open(file, 1280, 900, "light")
	b.truth("[...document.querySelectorAll('th button')].every(e => e.tabIndex === 0)", "every header can be reached by keyboard")
	b.truth("[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0)", "every wide table can be scrolled by keyboard")
	values := "[...document.querySelectorAll('#gates tbody tr')].map(r => r.cells[2].dataset.v).filter(v => v !== undefined).map(Number)"
	b.eval("document.querySelectorAll('#gates th button')[2].focus()", nil)
	for _, want := range []string{"ascending", "descending"} {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", anyMap{"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}, nil)
		}
		b.truth("document.querySelectorAll('#gates th')[2].getAttribute('aria-sort') === '"+want+"'", "Enter sorts "+want)
		sign := map[string]string{"ascending": "v >= a[i-1]", "descending": "v <= a[i-1]"}[want]
		b.truth(values+".every((v, i, a) => i === 0 || "+sign+")", "the rows are "+want)
		b.eval("document.querySelectorAll('#alpha-errors th button')[2].click()", nil)
		b.truth("document.querySelectorAll('#alpha-errors th')[2].getAttribute('aria-sort') === '"+want+"'", "a click sorts "+want)
		b.truth("document.querySelector('#alpha-errors tbody tr:last-child').cells[2].textContent === '–'", "unknown values stand last")
	}
	b.eval("document.getElementById('theme').click()", nil)
	b.truth("getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)'", "the switch turns the page dark")
	b.eval("document.getElementById('theme').click()", nil)
	b.truth("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'", "and light again")
	b.eval("location.hash = '#fig-qq'", nil)
	b.eval("dispatchEvent(new HashChangeEvent('hashchange'))", nil)
	b.truth("document.getElementById('fig-qq').closest('details').open", "a link into a folded part opens it")
	b.quiet()
}

// openHostile: hostile strings everywhere run nothing and ask for nothing.
func openHostile(t *testing.T, b *browser) {
	file := filepath.Join(t.TempDir(), "report.html")
	repo.Write(t, render(t, poisoned(evil)), file)
	b.open(file, 1280, 900, "light")
	b.truth("document.querySelectorAll('img').length === 0 && document.scripts.length === 1", "no foreign element")
	b.quiet()
}

// maxSheets is the most sheets a report of the composed runs may print on; the made-up
// one is as long.
const maxSheets = 11

// writtenReport is a report to open, and the folder it stands in.
func writtenReport(t *testing.T) (dir, file string) {
	dir = t.TempDir()
	if d := os.Getenv("BLIS_TRAIN_SHOTS"); d != "" {
		dir = d
	}
	in := made(small, plainRun)
	if out := os.Getenv("BLIS_TRAIN_OUT"); out != "" {
		in = folder(t, out)
	}
	file = filepath.Join(dir, "report.html")
	repo.Write(t, render(t, in), file)
	return dir, file
}

// printPage: the page prints on few sheets, what is for experts stays folded,
// and what the reader opened prints. BLIS_TRAIN_OUT=DIR prints the report of that run
// folder.
func printPage(t *testing.T, b *browser) {
	dir, file := writtenReport(t)
	b.open(file, 1280, 900, "dark")
	var pdf struct {
		Data string `json:"data"`
	}
	b.call("Page.printToPDF", anyMap{"printBackground": true}, &pdf)
	raw, err := base64.StdEncoding.DecodeString(pdf.Data)
	if err != nil || !bytes.HasPrefix(raw, []byte("%PDF")) {
		t.Fatalf("print: %v, %d bytes", err, len(raw))
	}
	repo.Write(t, raw, dir, "report.pdf")
	if n := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(raw, -1)); n == 0 || n > maxSheets {
		t.Errorf("the report prints on %d sheets, want 1 to %d", n, maxSheets)
	} else {
		t.Logf("%d sheets", n)
	}
	b.truth("[...document.querySelectorAll('details')].every(d => !d.open)", "folded parts stay folded in print")
	b.call("Emulation.setDeviceMetricsOverride", anyMap{"width": 760, "height": 1000, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", anyMap{"media": "print", "features": []anyMap{{"name": "prefers-color-scheme", "value": "dark"}}},
		nil)
	b.truth("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'", "paper is white in the dark scheme too")
	b.truth("document.querySelector('.fold').offsetHeight === 0", "what is folded takes no paper")
	b.eval("document.querySelector('.fold').open = true", nil)
	b.truth("document.querySelector('.fold').offsetHeight > 100", "what was opened prints")
	b.screenshot(filepath.Join(dir, "print.png"))
	b.quiet()
}
