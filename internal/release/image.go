package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nobody is the user of the container: the number that distroless images use.
const nobody = "65532:65532"

// binary is what stands in an image, and for which platform.
type binary struct {
	target
	path string
}

// writeImage writes an OCI image archive (image-spec 1.1): one image a platform, each of
// a single layer that holds the binary and nothing else.
func writeImage(name string, binaries []binary, s stamp) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer closed(f, &err)
	w := &layout{w: tar.NewWriter(f), date: s.date, seen: map[digest.Digest]bool{}}
	defer closed(w.w, &err)
	if err := w.file("oci-layout", []byte(`{"imageLayoutVersion":"`+v1.ImageLayoutVersion+`"}`)); err != nil {
		return err
	}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, b := range binaries {
		d, err := w.image(b, s)
		if err != nil {
			return err
		}
		d.Platform = &v1.Platform{OS: b.os, Architecture: b.arch}
		index.Manifests = append(index.Manifests, d)
	}
	all, err := w.document(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{v1.AnnotationRefName: imageName(s)} // what podman load calls it
	text, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{all}})
	if err != nil {
		return err
	}
	return w.file("index.json", text)
}

func imageName(s stamp) string { return "blis-train:" + s.version }

// layout is an image layout inside a tar file.
type layout struct {
	w    *tar.Writer
	date time.Time
	seen map[digest.Digest]bool
}

func (l *layout) file(name string, text []byte) error { return tarFile(l.w, name, text, 0o644, l.date) }

// blob stores bytes under their digest, once.
func (l *layout) blob(mediaType string, text []byte) (v1.Descriptor, error) {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if l.seen[d.Digest] {
		return d, nil
	}
	l.seen[d.Digest] = true
	return d, l.file("blobs/sha256/"+d.Digest.Encoded(), text)
}

func (l *layout) document(mediaType string, doc any) (v1.Descriptor, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.blob(mediaType, text)
}

// image stores layer, configuration and manifest of one platform.
func (l *layout) image(b binary, s stamp) (v1.Descriptor, error) {
	plain, packed, err := layerOf(b, s)
	if err != nil {
		return v1.Descriptor{}, err
	}
	layer, err := l.blob(v1.MediaTypeImageLayerGzip, packed)
	if err != nil {
		return layer, err
	}
	labels := map[string]string{v1.AnnotationTitle: "blis-train", v1.AnnotationVersion: s.version, v1.AnnotationRevision: s.commit,
		v1.AnnotationLicenses: "Apache-2.0", v1.AnnotationSource: "https://github.com/blis-train/blis-train"}
	config, err := l.document(v1.MediaTypeImageConfig, v1.Image{
		Created: &s.date, Platform: v1.Platform{OS: b.os, Architecture: b.arch},
		Config: v1.ImageConfig{User: nobody, Entrypoint: []string{"/blis-train"}, Cmd: []string{"--help"}, WorkingDir: "/", Labels: labels},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
	})
	if err != nil {
		return config, err
	}
	return l.document(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest, Config: config, Layers: []v1.Descriptor{layer}, Annotations: labels})
}

// layerOf is the layer as tar, plain and compressed: the binary, and a /tmp that a
// volume may be mounted on where the root is read-only.
func layerOf(b binary, s stamp) (plain, packed []byte, err error) {
	text, err := os.ReadFile(b.path)
	if err != nil {
		return nil, nil, err
	}
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	tmp := &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: s.date, Format: tar.FormatPAX}
	if err := w.WriteHeader(tmp); err != nil {
		return nil, nil, err
	}
	if err := tarFile(w, "blis-train", text, 0o755, s.date); err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return nil, nil, err
	}
	if _, err := z.Write(raw.Bytes()); err != nil {
		return nil, nil, err
	}
	err = z.Close()
	return raw.Bytes(), small.Bytes(), err
}
