// Package bucket lists objects of Google Cloud Storage and Amazon S3 and reads ranges of them.
// Whose account pays, and which endpoint answers, the clients of both read from the
// environment (GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST, AWS_PROFILE, AWS_ENDPOINT_URL).
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
	URL   string `json:"url"`
	Bytes int64  `json:"bytes"`
}

// Store reads the objects of one service; any number of goroutines may use it.
type Store interface {
	// List is the objects whose names begin with a prefix, by name.
	List(ctx context.Context, bucket, prefix string) ([]Object, error)
	// Open reads n bytes from a place on, fewer at the end, and says how long the object is.
	Open(ctx context.Context, bucket, name string, from, n int64) (r io.ReadCloser, size int64, err error)
}

// Schemes of addresses.
const (
	gsScheme = "gs://"
	s3Scheme = "s3://"
)

// IsURL reports whether a name is that of an object or a prefix.
func IsURL(url string) bool {
	return strings.HasPrefix(url, gsScheme) || strings.HasPrefix(url, s3Scheme)
}

// Split is the bucket and the name in it.
func Split(url string) (bucket, name string) {
	bucket, name, _ = strings.Cut(url[len(gsScheme):], "/")
	return bucket, name
}

// StoreOf is the store of an address.
func StoreOf(ctx context.Context, url string) (Store, error) {
	switch {
	case strings.HasPrefix(url, gsScheme):
		c, err := storage.NewClient(ctx)
		return google{c}, err
	case strings.HasPrefix(url, s3Scheme):
		c, err := config.LoadDefaultConfig(ctx)
		// Servers that speak S3 elsewhere rarely have a host name for each bucket.
		return amazon{s3.NewFromConfig(c, func(o *s3.Options) { o.UsePathStyle = os.Getenv("AWS_ENDPOINT_URL") != "" })}, err
	}
	return nil, fmt.Errorf("%s: want gs://BUCKET/NAME or s3://BUCKET/NAME", url)
}

// google is the store of Google Cloud Storage.
type google struct{ c *storage.Client }

func (g google) List(ctx context.Context, bucket, prefix string) (out []Object, err error) {
	for it := g.c.Bucket(bucket).Objects(ctx, &storage.Query{Prefix: prefix}); ; {
		o, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s%s/%s: %w", gsScheme, bucket, prefix, err)
		}
		out = append(out, Object{gsScheme + bucket + "/" + o.Name, o.Size})
	}
}

func (g google) Open(ctx context.Context, bucket, name string, from, n int64) (io.ReadCloser, int64, error) {
	r, err := g.c.Bucket(bucket).Object(name).ReadCompressed(true).NewRangeReader(ctx, from, n)
	if err != nil {
		return nil, 0, fmt.Errorf("%s%s/%s: %w", gsScheme, bucket, name, err)
	}
	return r, r.Attrs.Size, nil
}

// amazon is the store of S3 and of servers that have its interface.
type amazon struct{ c *s3.Client }

func (a amazon) List(ctx context.Context, bucket, prefix string) (out []Object, err error) {
	pages := s3.NewListObjectsV2Paginator(a.c, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s%s/%s: %w", s3Scheme, bucket, prefix, err)
		}
		for i := range page.Contents {
			o := &page.Contents[i]
			out = append(out, Object{s3Scheme + bucket + "/" + aws.ToString(o.Key), aws.ToInt64(o.Size)})
		}
	}
	return out, nil
}

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
