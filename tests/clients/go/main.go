// A grpc-go client that submits, watches, reads and cancels jobs, and makes one invalid request. Prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	assay "assay.example/client/gen/assay/v1"
)

type mistake struct {
	Status string     `json:"status"`
	Reason string     `json:"reason"`
	Fields [][]string `json:"fields"`
}

type story struct {
	Watched   []string `json:"watched"`
	Value     float64  `json:"value"`
	Cancelled []string `json:"cancelled"`
	Mistake   mistake  `json:"mistake"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func env(name string) string {
	value, there := os.LookupEnv(name)
	if !there {
		log.Fatal(name + " is not set")
	}
	return value
}

func submission(suiteID string, itemIDs ...string) *assay.CreateEvalRequest {
	request := &assay.CreateEvalRequest{SuiteId: suiteID}
	for _, id := range itemIDs {
		ranking := &assay.PredictionValue_Ranking{Ranking: &assay.Ranking{Ids: []string{"ramen"}}}
		request.Predictions = append(request.Predictions, &assay.Prediction{ItemId: id, Prediction: &assay.PredictionValue{Value: ranking}})
	}
	return request
}

// Calls seen for each job in the stream, until it closes. Heartbeats have no job.
func watch(ctx context.Context, jobs assay.JobServiceClient, id string, seen func(*assay.Job)) {
	stream, err := jobs.WatchJob(ctx, &assay.WatchJobRequest{JobId: id})
	check(err)
	for {
		change, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		check(err)
		if change.Job != nil {
			seen(change.Job)
		}
	}
}

func main() {
	connection, err := grpc.NewClient(env("ASSAY_GRPC"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	wait, err := time.ParseDuration(env("ASSAY_TEST_WAIT_SECONDS") + "s")
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+env("ASSAY_API_KEY"))
	evals, jobs := assay.NewEvalServiceClient(connection), assay.NewJobServiceClient(connection)
	item := env("ASSAY_ITEM")
	var result story

	scored, err := evals.CreateEval(ctx, submission(env("ASSAY_SUITE"), item))
	check(err)
	watch(ctx, jobs, scored.Job.Id, func(job *assay.Job) { result.Watched = append(result.Watched, job.Status) })
	got, err := jobs.GetJob(ctx, &assay.GetJobRequest{JobId: scored.Job.Id})
	check(err)
	result.Value = got.Job.Result.Value

	held, err := evals.CreateEval(ctx, submission(env("ASSAY_HELD_SUITE"), item))
	check(err)
	watch(ctx, jobs, held.Job.Id, func(job *assay.Job) {
		result.Cancelled = append(result.Cancelled, job.Status)
		if job.Status == "running" {
			_, err := jobs.CancelJob(ctx, &assay.CancelJobRequest{JobId: job.Id})
			check(err)
		}
	})

	_, err = evals.CreateEval(ctx, submission("suite:none", item, item))
	rejected := status.Convert(err)
	result.Mistake.Status = rejected.Code().String()
	for _, detail := range rejected.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			result.Mistake.Reason = detail.Reason
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				result.Mistake.Fields = append(result.Mistake.Fields, []string{violation.Field, violation.Reason})
			}
		}
	}
	written, err := json.Marshal(result)
	check(err)
	fmt.Println(string(written))
}
