// SPDX-License-Identifier: Apache-2.0

// Command apiserver is the API server of Kubernetes. It makes the key of service accounts first if its file does not exist.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// keyFile is the variable with the path of the key.
const keyFile = "SERVICE_ACCOUNT_KEY"

func makeKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(&block), 0o600)
}

func main() {
	if err := makeKey(os.Getenv(keyFile)); err != nil {
		log.Fatal(err)
	}
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
