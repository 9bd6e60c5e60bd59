// Command compose reads a compose file as Docker does, substitutes variables, and prints its services' names.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithProfiles([]string{"*"}), cli.WithOsEnv)
	if err == nil {
		project, failed := options.LoadProject(context.Background())
		if failed == nil {
			fmt.Println(strings.Join(project.ServiceNames(), " "))
			return
		}
		err = failed
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
