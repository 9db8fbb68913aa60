package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
)

type goldenLoad struct {
	ID        string          `json:"id"`
	Config    json.RawMessage `json:"config_json"`
	Overrides struct {
		NumMLPProj          trace.Opt[int64] `json:"n_mlp_proj"`
		AssumeFullAttention bool             `json:"assume_full_attention"`
		MaxModelLen         trace.Opt[int64] `json:"max_model_len"`
		DType               string           `json:"dtype"`
		KVCacheDType        string           `json:"kv_cache_dtype"`
	} `json:"overrides"`
	Want   *goldenModel `json:"expected"`
	Reason trace.Code   `json:"reason"`
}

type goldenModel struct {
	model.Model
	Warnings []trace.Code `json:"warnings"`
}

// goldenLoads reads the load cases of the file that BLIS_TRAIN_GOLDEN names,
// or of the copy beside the features.
func goldenLoads(t *testing.T) []goldenLoad {
	t.Helper()
	names, err := filepath.Glob("../pipeline/features/testdata/features_golden*.json")
	if err != nil {
		t.Fatal(err)
	}
	if name := os.Getenv("BLIS_TRAIN_GOLDEN"); name != "" {
		names = []string{name}
	}
	var loads []goldenLoad
	for _, name := range names {
		text := repo.Read(t, name)
		var file struct {
			Loads []goldenLoad `json:"load_cases"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		loads = append(loads, file.Loads...)
	}
	return loads
}

// The golden models, loaded field by field (spec#model-fields).
func TestGolden(t *testing.T) {
	loads := goldenLoads(t)
	var accepted, rejected int
	for _, c := range loads {
		t.Run(c.ID, func(t *testing.T) { c.check(t) })
		if c.Reason == "" {
			accepted++
		} else {
			rejected++
		}
	}
	fmt.Printf("golden: %d cases of load, %d accepted and %d rejected\n", len(loads), accepted, rejected)
	if accepted == 0 || rejected == 0 {
		t.Errorf("golden: got %d accepted and %d rejected load cases, want some of each", accepted, rejected)
	}
}

func (c *goldenLoad) check(t *testing.T) {
	o := c.Overrides
	m, err := model.Load(bytes.NewReader(c.Config), c.ID+".json", model.Options{NumMLPProj: o.NumMLPProj,
		AssumeFullAttention: o.AssumeFullAttention, MaxModelLen: o.MaxModelLen, DType: o.DType, KVCacheDType: o.KVCacheDType})
	if err == nil {
		if why := m.WhyLayered(); why != "" {
			err = trace.Errorf(model.UnsupportedModel, "%s", why)
		}
	}
	if c.Reason != "" {
		if code := trace.CodeOf(err); code != c.Reason {
			t.Errorf("got %q (%v), want %q", code, err, c.Reason)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	warnings := m.Warnings
	m.Warnings = nil
	m.ModelType = ""
	m.MaxPositionEmbeddings = 0
	m.Encoders = nil
	m.UnknownKeys = nil
	m.BLIS = nil
	m.Decoder, m.Tied = nil, false
	if want := c.Want.Model; fmt.Sprintf("%+v", m) != fmt.Sprintf("%+v", want) {
		t.Errorf("model:\n got %+v\nwant %+v", m, want)
	}
	if !slices.Equal(warnings, c.Want.Warnings) && len(warnings)+len(c.Want.Warnings) > 0 {
		t.Errorf("warnings: got %q, want %q", warnings, c.Want.Warnings)
	}
}
