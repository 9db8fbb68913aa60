package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export/compare"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// physics is a coefficient set bound to one deployment: batch in, us out.
type physics struct {
	set   *coeff.Set
	space *features.Space
	x     []float64
}

func newPhysics(set *coeff.Set, d deploy.Deployment) (*physics, error) {
	space, err := features.New(set.SpecVersion, &d)
	if err != nil {
		return nil, err
	}
	return &physics{set: set.On(&d), space: space, x: make([]float64, len(set.Beta))}, nil
}

// StepUs predicts one step of the batch.
func (p *physics) StepUs(batch []trace.Chunk) (float64, error) {
	in := p.space.Sum(batch)
	if _, err := p.space.Beta(&in, p.x); err != nil {
		return 0, err
	}
	return p.set.Predict(p.x), nil
}

// vectorizer returns the beta features of batches under the set's spec version.
func vectorizer(set *coeff.Set) compare.Vectorizer {
	return func(d *deploy.Deployment, batch []trace.Chunk) ([]float64, error) {
		p, err := newPhysics(set, *d)
		if err != nil {
			return nil, err
		}
		_, err = p.StepUs(batch)
		return p.x, err
	}
}

// readInput reads a file and says what it is, by base name.
func (con *console) readInput(path string) ([]byte, result.Input, error) {
	data, err := files.Read(path, maxInput, con.special)
	if err != nil {
		return nil, result.Input{}, err
	}
	return data, inputOf(filepath.Base(path), data), nil
}

func inputOf(name string, data []byte) result.Input {
	sum := sha256.Sum256(data)
	return result.Input{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// loadSet reads a coefficient file.
func (con *console) loadSet(path string) (*coeff.Set, result.Input, error) {
	data, in, err := con.readInput(path)
	if err != nil {
		return nil, in, err
	}
	set, err := coeff.Load(bytes.NewReader(data), path)
	if err != nil && stageOf(path) == "fit" {
		err = &hinted{err: fmt.Errorf("%s: got a file that fit wrote, want a coefficient file", path), hint: "blis-train export " + path + " -o " + coefficientsFile}
	}
	return set, in, err
}

// setBytes is the file a set is saved as.
func setBytes(set *coeff.Set) ([]byte, error) {
	var b bytes.Buffer
	err := set.Save(&b)
	return b.Bytes(), err
}
