// Package buckettest serves objects to tests as Google Cloud Storage and Amazon S3 do.
package buckettest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Fake is a server with as much of both protocols as lists and range reads need.
type Fake struct {
	Objects map[string][]byte // by name; every bucket has them
	Sent    atomic.Int64      // bytes of objects that were sent
}

// Serve starts a server and points the clients of both services to it.
func Serve(t *testing.T, objects map[string][]byte) *Fake {
	t.Helper()
	f := &Fake{Objects: objects}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", s.URL)
	for name, value := range map[string]string{"ENDPOINT_URL": s.URL, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1",
		"CONFIG_FILE": t.TempDir() + "/none", "SHARED_CREDENTIALS_FILE": t.TempDir() + "/none"} {
		t.Setenv("AWS_"+name, value)
	}
	return f
}

// item is an object in a listing, under the names of both interfaces: Google's JSON and S3's XML.
type item struct {
	Name string `json:"name" xml:"Key"`
	Size string `json:"size" xml:"Size"`
}

// list is a listing of a bucket in either form.
type list struct {
	XMLName xml.Name `json:"-" xml:"ListBucketResult"`
	Items   []item   `json:"items" xml:"Contents"`
}

// ServeHTTP answers a listing in Google's or S3's form, and otherwise sends the object /BUCKET/NAME, of which
// http.ServeContent selects the range.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var found list
	for _, name := range slices.Sorted(maps.Keys(f.Objects)) {
		if strings.HasPrefix(name, q.Get("prefix")) {
			found.Items = append(found.Items, item{Name: name, Size: strconv.Itoa(len(f.Objects[name]))})
		}
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/storage/v1/b/") || strings.HasPrefix(r.URL.Path, "/b/"):
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	case q.Get("list-type") == "2":
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(found)
	default:
		_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if _, ok := f.Objects[name]; !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(&counting{w, &f.Sent}, r, "", time.Time{}, bytes.NewReader(f.Objects[name]))
	}
}

// counting is a response that adds the bytes written to n.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write sends the bytes and counts them.
func (c *counting) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}
