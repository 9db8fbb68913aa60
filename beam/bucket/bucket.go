// Package bucket lists objects of Google Cloud Storage and Amazon S3 and reads ranges of them. The
// clients of both take credentials and endpoints from the environment (GOOGLE_APPLICATION_CREDENTIALS,
// STORAGE_EMULATOR_HOST, AWS_PROFILE, AWS_ENDPOINT_URL).
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/api/iterator"
)

// Object is a file in a bucket.
type Object struct {
	URL   string `json:"url"` // gs://BUCKET/NAME or s3://BUCKET/NAME
	Bytes int64  `json:"bytes"`
}

// Store reads the objects of one service. It is safe for concurrent use.
type Store interface {
	// List returns the objects whose names begin with the prefix, sorted by name.
	List(ctx context.Context, bucket, prefix string) ([]Object, error)
	// Open returns a reader of n bytes of an object from the offset `from` on, fewer at its end, and
	// the length of the whole object.
	Open(ctx context.Context, bucket, name string, from, n int64) (r io.ReadCloser, size int64, err error)
}

// Schemes of addresses.
const (
	gsScheme = "gs://"
	s3Scheme = "s3://"
)

// IsURL reports whether a name is the address of an object or of a prefix, and not a path of a file.
func IsURL(url string) bool {
	return strings.HasPrefix(url, gsScheme) || strings.HasPrefix(url, s3Scheme)
}

// Split returns the bucket of an address and the name in it.
func Split(url string) (bucket, name string) {
	bucket, name, _ = strings.Cut(url[len(gsScheme):], "/") // both schemes are of one length
	return bucket, name
}

// StoreOf returns the store of the service that an address names.
func StoreOf(ctx context.Context, url string) (Store, error) {
	switch {
	case strings.HasPrefix(url, gsScheme):
		c, err := storage.NewClient(ctx)
		return google{c: c}, err
	case strings.HasPrefix(url, s3Scheme):
		c, err := config.LoadDefaultConfig(ctx)
		// Amazon has a host name for each bucket; other servers with the interface of S3 rarely have.
		return amazon{c: s3.NewFromConfig(c, func(o *s3.Options) { o.UsePathStyle = os.Getenv("AWS_ENDPOINT_URL") != "" })}, err
	}
	return nil, fmt.Errorf("%s: want gs://BUCKET/NAME or s3://BUCKET/NAME", url)
}

// google is the store of Google Cloud Storage.
type google struct{ c *storage.Client }

// List returns the objects whose names begin with the prefix, sorted by name.
func (g google) List(ctx context.Context, bucket, prefix string) (out []Object, err error) {
	for it := g.c.Bucket(bucket).Objects(ctx, &storage.Query{Prefix: prefix}); ; {
		o, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s%s/%s: %w", gsScheme, bucket, prefix, err)
		}
		out = append(out, Object{URL: gsScheme + bucket + "/" + o.Name, Bytes: o.Size})
	}
}

// Open returns a reader of a range of an object as it is stored: the service does not decompress it.
func (g google) Open(ctx context.Context, bucket, name string, from, n int64) (io.ReadCloser, int64, error) {
	r, err := g.c.Bucket(bucket).Object(name).ReadCompressed(true).NewRangeReader(ctx, from, n)
	if err != nil {
		return nil, 0, fmt.Errorf("%s%s/%s: %w", gsScheme, bucket, name, err)
	}
	return r, r.Attrs.Size, nil
}

// amazon is the store of S3 and of servers that have its interface.
type amazon struct{ c *s3.Client }

// List returns the objects whose names begin with the prefix, sorted by name.
func (a amazon) List(ctx context.Context, bucket, prefix string) (out []Object, err error) {
	pages := s3.NewListObjectsV2Paginator(a.c, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s%s/%s: %w", s3Scheme, bucket, prefix, err)
		}
		for i := range page.Contents {
			o := &page.Contents[i]
			out = append(out, Object{URL: s3Scheme + bucket + "/" + aws.ToString(o.Key), Bytes: aws.ToInt64(o.Size)})
		}
	}
	return out, nil
}

// Open returns a reader of a range of an object, and the object's length, which is in the header
// Content-Range: "bytes FROM-TO/LENGTH".
func (a amazon) Open(ctx context.Context, bucket, name string, from, n int64) (io.ReadCloser, int64, error) {
	got, err := a.c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &name,
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, from+n-1))})
	if err != nil {
		return nil, 0, fmt.Errorf("%s%s/%s: %w", s3Scheme, bucket, name, err)
	}
	_, of, _ := strings.Cut(aws.ToString(got.ContentRange), "/")
	size, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		got.Body.Close()
		return nil, 0, fmt.Errorf("%s%s/%s: got the range %q, want one that ends with the length", s3Scheme, bucket, name, of)
	}
	return got.Body, size, nil
}
